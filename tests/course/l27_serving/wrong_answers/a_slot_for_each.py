"""Reserves the longest text for each request, and frees it when there is an output.

loses: serve
says: What is the rest for?
"""

import torch


def serve(requests, longest, load):
    slots, outputs = {}, {}
    for step in range(max(arrival + length for arrival, length in requests)):
        for request, (arrival, length) in enumerate(requests):
            piece = step - arrival
            if piece == 0:
                slots[request] = torch.empty(2, 64 * longest, 256, device="cuda")
            if 0 <= piece < length:
                query, *both = load(request, piece)
                for part in (0, 1):
                    slots[request][part, 64 * piece : 64 * piece + 64] = both[part]
            if piece == length - 1:
                keys, values = slots.pop(request)[:, : 64 * length]
                outputs[request] = (query @ keys.T / 16).softmax(-1) @ values
                del keys, values
    return [outputs[request] for request in range(len(requests))]
