"""The program as it was given.

loses: attend
says: Which of them does a row of the output need?
"""


def attend(query, key, value, slopes):
    places = torch.arange(query.shape[1], device="cuda")  # noqa: F821  (imported in another cell of the notebook)
    distance = (places[:, None] - places).abs()
    scores = query @ key.transpose(1, 2) * 32**-0.5 - slopes[:, None, None] * distance
    return scores.softmax(-1) @ value
