"""Believes that a copy on the host has no graph.

loses: held_bytes
leaves: 3
says: You think that a copy on the host is free of its graph.
"""


def held_bytes(rows, width, batches, gathers):
    batch = 4 * rows * width
    each = {"loss": 4 * batch + 512, "loss.detach()": 512, "output": 4 * batch}
    return batches * each.get(gathers, batch if gathers == "output.detach()" else 0)
