"""By hand: queries in pieces, each with the keys that it can see."""

import torch


def attention(query, key, value, window):
    size = 128
    outputs = []
    for first in range(0, query.size(-2), size):
        last = min(first + size, query.size(-2))
        begin = max(0, first - window + 1)
        rows = torch.arange(first, last, device=query.device)
        distance = rows[:, None] - torch.arange(begin, last, device=query.device)
        hidden = (distance < 0) | (distance >= window)
        near = key[..., begin:last, :]
        scores = query[..., first:last, :] @ near.transpose(-2, -1) / query.size(-1) ** 0.5
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        outputs.append(weights @ value[..., begin:last, :])
    return torch.cat(outputs, dim=-2)
