"""Takes four bytes whatever the dtype.

loses: training_bytes
leaves: 1.5
says: You take 4 bytes for everything.
"""


def training_bytes(widths, dtype, optimizer, frozen):
    weights = [widths[i] * widths[i + 1] for i in range(len(widths) - 1)]
    states = {"sgd": 0, "momentum": 1, "adam": 2}[optimizer]
    return 4 * (sum(weights) + (1 + states) * sum(weights[frozen:]))
