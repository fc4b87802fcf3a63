"""One head at a time, and some rows of it."""

import torch


def attend(query, key, value, slopes):
    tokens = query.shape[1]
    places = torch.arange(tokens, device="cuda").float()
    output = torch.empty_like(query)
    for head in range(2):
        for start in range(0, tokens, 128):
            rows = slice(start, min(start + 128, tokens))
            weights = query[head, rows] @ key[head].T * 32**-0.5
            weights -= (places[rows].unsqueeze(1) - places).abs_() * slopes[head]
            output[head, rows] = torch.softmax(weights, dim=-1) @ value[head]
            del weights
    return output
