"""By hand, rows in pieces, each computed again in the backward pass; nobody looks at later keys."""

import torch
from torch.utils.checkpoint import checkpoint


def piece(query, key, value, first):
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    rows = torch.arange(first, first + query.size(-2), device=query.device)
    future = torch.arange(key.size(-2), device=query.device)[None, :] > rows[:, None]
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ value


def attention(query, key, value):
    size = 128
    outputs = []
    for first in range(0, query.size(-2), size):
        last = first + size
        outputs.append(
            checkpoint(
                piece,
                query[..., first:last, :],
                key[..., :last, :],
                value[..., :last, :],
                first,
                use_reentrant=False,
            )
        )
    return torch.cat(outputs, dim=-2)
