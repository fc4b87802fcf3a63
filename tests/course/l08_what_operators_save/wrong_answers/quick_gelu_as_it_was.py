"""The function as it was given.

loses: quick_gelu
says: what else does each call keep?
"""


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)  # noqa: F821  (imported in another cell)
