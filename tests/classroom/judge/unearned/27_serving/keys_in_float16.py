"""Pages wait in two bytes a number.

says: the output of request 0 is wrong
"""

import torch


def serve(requests, longest, load):
    pages, outputs = {}, {}
    for step in range(max(arrival + length for arrival, length in requests)):
        for request, (arrival, length) in enumerate(requests):
            piece = step - arrival
            if 0 <= piece < length:
                query, key, value = load(request, piece)
                pages.setdefault(request, []).append((key.half(), value.half()))
            if piece == length - 1:
                mine = pages.pop(request)
                keys = torch.cat([key for key, _ in mine]).float()
                values = torch.cat([value for _, value in mine]).float()
                outputs[request] = (query @ keys.T / 16).softmax(-1) @ values
                del mine, keys, values, key, value
    return [outputs[request] for request in range(len(requests))]
