"""Features wait in two bytes a number.

says: It still runs out of memory
"""

import torch


def collect(load, lengths):
    features = []
    for length in lengths:
        hidden = load(length)
        features.append(hidden[: length * 6 // 10].half())
        del hidden
    return [feature.float() for feature in features]
