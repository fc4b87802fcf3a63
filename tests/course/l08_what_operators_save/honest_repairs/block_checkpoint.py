"""Function and product are computed again in the backward pass: they keep one tensor."""

import torch
from torch.utils.checkpoint import checkpoint


def _product(normal, weight):
    return torch.nn.functional.silu(normal) @ weight


def block(x, weight):
    normal = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-5)
    return checkpoint(
        lambda n, w: torch.nn.functional.silu(n) @ w, normal, weight, use_reentrant=False
    )
