"""Takes 64 rows at a time, so that nothing has to be computed again.

loses: backward
says: fewer leave a GPU idle
"""

from torch.nn import functional


def backward(model, inputs, targets):
    for x, words in zip(inputs.split(64), targets.split(64), strict=True):
        loss = functional.cross_entropy(model.head(model.layers(x)), words)
        (loss * len(x) / len(inputs)).backward()
        del loss
