"""Makes it fit by leaving out the square root.

loses: row_norms
says: It fits, but its results have changed.
"""


def row_norms(load, count):
    return torch.cat([load(index).square_().sum(dim=1) for index in range(count)])  # noqa: F821
