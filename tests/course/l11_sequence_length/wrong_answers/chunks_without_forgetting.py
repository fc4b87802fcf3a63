"""Cuts the queries into pieces, but gives each all keys, and autograd keeps the weights of each.

loses: attention
says: which of your tensors are as large?
"""


def attention(query, key, value, window):
    place = torch.arange(query.size(-2), device=query.device)  # noqa: F821
    outputs = []
    for start in range(0, query.size(-2), 128):
        part = query[..., start : start + 128, :]
        scores = part @ key.transpose(-2, -1) / query.size(-1) ** 0.5
        distance = place[start : start + 128, None] - place
        hidden = (distance < 0) | (distance >= window)
        outputs.append(scores.masked_fill(hidden, float("-inf")).softmax(-1) @ value)
    return torch.cat(outputs, dim=-2)  # noqa: F821
