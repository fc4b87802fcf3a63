"""Tiles of queries and of keys, with a running maximum and sum, as flash attention does."""

import torch


def attend(query, key, value, slopes, tile=256):
    tokens = query.shape[1]
    places = torch.arange(tokens, device="cuda", dtype=torch.float32)
    rows_done = []
    for queries, at in zip(query.split(tile, 1), places.split(tile)):
        largest = torch.full((*queries.shape[:2], 1), -torch.inf, device="cuda")
        sums, output = torch.zeros_like(largest), torch.zeros_like(queries)
        for keys, values, there in zip(key.split(tile, 1), value.split(tile, 1), places.split(tile)):
            scores = queries @ keys.mT * 32**-0.5
            scores = scores - slopes.view(-1, 1, 1) * (at[:, None] - there).abs()
            new = torch.maximum(largest, scores.amax(-1, keepdim=True))
            weights, shrink = (scores - new).exp(), (largest - new).exp()
            sums = sums * shrink + weights.sum(-1, keepdim=True)
            output = output * shrink + weights @ values
            largest = new
        rows_done.append(output / sums)
    return torch.cat(rows_done, 1)
