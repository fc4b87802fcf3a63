"""Steps of an optimizer that are taken within the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


def step_in_backward(
    parameters: Iterable[nn.Parameter],
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
) -> list[torch.optim.Optimizer]:
    """Update each parameter as soon as its gradient is complete, then free the gradient.

    Each parameter gets its own optimizer, which a hook calls. From then on `backward()` is
    the whole step. All gradients never exist together: they cannot be accumulated
    over several backward passes, clipped by their common norm, or looked at for overflow.

    Parameter, hook and optimizer hold each other: only Python's garbage collector frees such a
    model when it is no longer used.

    Args:
        parameters: of the model.
        make: makes an optimizer for one of them.

    Returns:
        The optimizers, whose learning rates can be changed.
    """

    def hook(optimizer: torch.optim.Optimizer) -> Callable[[Tensor], None]:
        def update(_: Tensor) -> None:
            optimizer.step()
            optimizer.zero_grad()

        return update

    optimizers = []
    for parameter in parameters:
        optimizer = make([parameter])
        parameter.register_post_accumulate_grad_hook(hook(optimizer))
        optimizers.append(optimizer)
    return optimizers
