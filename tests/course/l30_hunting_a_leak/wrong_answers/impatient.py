"""Waits for two steps only.

loses: leaks
leaves: 3
says: It calls a cache of 8 masks a leak.
"""


def leaks(step):
    held = []
    for _ in range(6):
        step()
        gc.collect()  # noqa: F821  (imported in another cell)
        held.append(torch.cuda.memory_allocated())  # noqa: F821
    return held[-1] > held[1]
