"""Compares before and after the first step.

loses: leaks
says: It calls a healthy step a leak.
"""


def leaks(step):
    before = torch.cuda.memory_allocated()  # noqa: F821  (imported in another cell)
    step()
    return torch.cuda.memory_allocated() > before  # noqa: F821
