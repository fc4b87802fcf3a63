"""Computes both halves on one GPU, one after the other.

loses: feed_forward
says: half of both matrices at the same time
"""


def feed_forward(x, up, down):
    result = 0
    for columns, rows in zip(up.chunk(2, dim=1), down.chunk(2, dim=0), strict=True):
        inner = torch.nn.functional.gelu(x @ columns.to("cuda:0"))  # noqa: F821  (imported in another cell)
        result = result + inner @ rows.to("cuda:0")
    return result
