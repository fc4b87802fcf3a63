"""Uses SiLU, and still normalizes by hand.

loses: block
says: Which operator of yours keeps another one?
"""


def block(x, weight):
    mean = x.mean(dim=-1, keepdim=True)
    variance = x.var(dim=-1, keepdim=True, unbiased=False)
    normal = (x - mean) / torch.sqrt(variance + 1e-5)  # noqa: F821  (imported in another cell)
    return functional.silu(normal) @ weight  # noqa: F821
