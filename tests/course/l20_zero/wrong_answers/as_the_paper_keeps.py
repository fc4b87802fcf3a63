"""Divides everything evenly, as the paper's formulas do.

loses: kept_bytes
says: You took the paper's formula, in which everything is divided evenly.
"""


def kept_bytes(stage, layers, width, ranks, rank):
    parameters = 4 * layers * width * width
    return {
        "DDP": 4 * parameters,
        "ZeRO-1": 2 * parameters + 2 * parameters // ranks,
        "ZeRO-2": parameters + 3 * parameters // ranks,
        "ZeRO-3": 4 * parameters // ranks,
    }[stage]
