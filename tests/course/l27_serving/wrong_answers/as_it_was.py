"""The program as it was given.

loses: serve
says: What is the rest for?
"""

import torch


def serve(requests, longest, load):
    keys, values, outputs = {}, {}, {}
    for step in range(max(arrival + length for arrival, length in requests)):
        for request, (arrival, length) in enumerate(requests):
            piece = step - arrival
            if piece == 0:
                keys[request] = torch.empty(64 * longest, 256, device="cuda")
                values[request] = torch.empty(64 * longest, 256, device="cuda")
            if 0 <= piece < length:
                query, key, value = load(request, piece)
                keys[request][64 * piece : 64 * piece + 64] = key
                values[request][64 * piece : 64 * piece + 64] = value
            if piece == length - 1:
                seen = 64 * length
                scores = query @ keys[request][:seen].T / 16
                outputs[request] = scores.softmax(-1) @ values[request][:seen]
    return [outputs[request] for request in range(len(requests))]
