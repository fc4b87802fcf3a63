"""Empties the cache in each round: pieces beside live tensors stay where they are.

loses: collect
says: It still runs out of memory: CUDA out of memory.
"""


def collect(load, lengths):
    features = []
    for length in lengths:
        hidden = load(length)
        part = hidden[: length * 6 // 10]
        features.append(part.clone())
        torch.cuda.empty_cache()  # noqa: F821  (imported in another cell of the notebook)
        del hidden
    return features
