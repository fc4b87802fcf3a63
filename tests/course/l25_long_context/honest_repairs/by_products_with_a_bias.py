"""baddbmm adds the bias, and tiles of queries are split and joined."""

import torch


def attend(query, key, value, slopes):
    places = torch.arange(query.shape[1], device=query.device)
    outputs = []
    for rows, mine in zip(query.split(64, dim=1), places.split(64), strict=True):
        bias = -slopes[:, None, None] * (mine[:, None] - places[None]).abs()
        scores = torch.baddbmm(bias, rows, key.mT, alpha=key.shape[-1] ** -0.5)
        outputs.append(torch.bmm(torch.softmax(scores, -1), value))
        del bias, scores
    return torch.cat(outputs, 1)
