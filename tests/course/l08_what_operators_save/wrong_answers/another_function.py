"""Fits, with a function that keeps less: ReLU.

loses: block
says: It fits, but computes something else
"""


def block(x, weight):
    normal = functional.layer_norm(x, (x.shape[-1],), eps=1e-5)  # noqa: F821  (imported elsewhere)
    return torch.relu(normal) @ weight  # noqa: F821
