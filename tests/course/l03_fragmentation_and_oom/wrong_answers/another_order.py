"""Makes it fit by the longest first, and returns the features in that order.

loses: collect
says: Are they in order?
"""


def collect(load, lengths):
    features = []
    for length in sorted(lengths, reverse=True):
        hidden = load(length)
        features.append(hidden[: length * 6 // 10].clone())
        del hidden
    return features
