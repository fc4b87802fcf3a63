"""Features wait on the host, so that no piece is left among the segments.

says: to the host. Everything has to stay on the GPU
"""

import torch


def collect(load, lengths):
    features = []
    for length in lengths:
        hidden = load(length)
        features.append(hidden[: length * 6 // 10].cpu())
        del hidden
    torch.cuda.empty_cache()
    return [feature.cuda() for feature in features]
