"""Leaves the loss out of what half the micro-batch saves.

loses: best_change
says: Half the micro-batch takes half of everything that the batch brings
"""


def best_change(states_bytes, layers_bytes, loss_bytes, ranks):
    saved = {
        "ZeRO-3": states_bytes * (ranks - 1) / ranks,
        "checkpoints": layers_bytes,
        "half the micro-batch": layers_bytes / 2,
    }
    return max(saved, key=saved.get)
