"""Cuts the first matrix by rows, and applies gelu to partial sums.

loses: feed_forward
says: What does gelu need
"""


def feed_forward(x, up, down):
    gelu = torch.nn.functional.gelu  # noqa: F821  (imported in another cell of the notebook)
    inner = []
    for rank, rows in enumerate(up.chunk(2, dim=0)):
        here = f"cuda:{rank}"
        inner.append(gelu(x.chunk(2, dim=1)[rank].to(here) @ rows.to(here)))
    sums = []
    for rank, rows in enumerate(down.chunk(2, dim=0)):
        here = f"cuda:{rank}"
        sums.append(inner[rank].chunk(2, dim=1)[rank] @ rows.to(here))
    return sums[0] + sums[1].to("cuda:0")
