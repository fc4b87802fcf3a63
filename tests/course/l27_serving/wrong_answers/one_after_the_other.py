"""Serves a request to its end, and then the next: as if all had come before.

loses: serve
says: Requests are served while they arrive
"""

import torch


def serve(requests, longest, load):
    outputs = []
    for request, (_, length) in enumerate(requests):
        pieces = [load(request, piece) for piece in range(length)]
        keys = torch.cat([key for _, key, _ in pieces])
        values = torch.cat([value for _, _, value in pieces])
        query = pieces[-1][0]
        del pieces
        outputs.append((query @ keys.T / 16).softmax(-1) @ values)
    return outputs
