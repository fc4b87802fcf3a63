"""Computes the function, and forgets to return it.

loses: quick_gelu
says: It has to return a tensor, and gives a NoneType.
"""


def quick_gelu(x):
    x * torch.sigmoid(1.702 * x)  # noqa: F821  (imported in another cell)
