"""Leaves both matrices on one GPU.

loses: feed_forward
says: It runs out of memory
"""


def feed_forward(x, up, down):
    up, down = up.to("cuda:0"), down.to("cuda:0")
    return torch.nn.functional.gelu(x @ up) @ down  # noqa: F821  (imported in another cell)
