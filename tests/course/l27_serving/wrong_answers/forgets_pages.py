"""Pages, which are never given back.

loses: serve
says: the keys and values of a finished request
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
            if piece == length - 1:
                keys = torch.cat([key for key, _ in pages[request]])
                values = torch.cat([value for _, value in pages[request]])
                outputs[request] = (query @ keys.T / 16).softmax(-1) @ values
    return [outputs[request] for request in range(len(requests))]
