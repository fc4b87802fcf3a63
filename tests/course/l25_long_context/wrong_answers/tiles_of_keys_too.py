"""Takes the softmax of each tile by itself, and adds up what comes of it.

loses: attend
says: It fits, but the attention output is wrong.
"""


def attend(query, key, value, slopes):
    tokens = query.shape[1]
    places = torch.arange(tokens, device="cuda", dtype=torch.float32)  # noqa: F821  (imported in another cell of the notebook)
    output = torch.zeros_like(query)  # noqa: F821
    for start in range(0, tokens, 128):
        keys = slice(start, start + 128)
        scores = query @ key[:, keys].transpose(1, 2) * 32**-0.5
        scores -= slopes[:, None, None] * (places[:, None] - places[keys]).abs()
        output += scores.softmax(-1) @ value[:, keys]
    return output
