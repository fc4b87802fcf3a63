"""Counts gradients and states of frozen layers.

loses: training_bytes
leaves: 1.5
says: You count gradients and states of frozen layers.
"""


def training_bytes(widths, dtype, optimizer, frozen):
    copies = {"sgd": 2, "momentum": 3, "adam": 4}[optimizer]
    weights = sum(widths[i] * widths[i + 1] for i in range(len(widths) - 1))
    return {"float32": 4, "float16": 2}[dtype] * copies * weights
