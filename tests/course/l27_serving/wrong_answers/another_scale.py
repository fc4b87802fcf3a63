"""Fits, and forgets to divide the scores.

loses: serve
says: It fits, but the output of request
"""

import torch


def serve(requests, longest, load):
    pages, outputs = {}, {}
    for step in range(max(arrival + length for arrival, length in requests)):
        for request, (arrival, length) in enumerate(requests):
            piece = step - arrival
            if 0 <= piece < length:
                query, key, value = load(request, piece)
                pages.setdefault(request, []).append((key, value))
                del key, value
            if piece == length - 1:
                keys, values = map(torch.cat, zip(*pages.pop(request), strict=True))
                outputs[request] = (query @ keys.T).softmax(-1) @ values
                del keys, values
    return [outputs[request] for request in range(len(requests))]
