"""PyTorch's optimizers by the names that the course's formulas have for them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda parameters, **how: torch.optim.SGD(parameters, lr=0.1, **how),
    "sgd with momentum": lambda parameters, **how: torch.optim.SGD(
        parameters, lr=0.1, momentum=0.9, **how
    ),
    "adamw": lambda parameters, **how: torch.optim.AdamW(parameters, **how),
}
"""By their names in `vramlab.programs.optimizer_states`."""


WAYS: dict[str, dict[str, bool]] = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
"""How step() works, by the names of `vramlab.programs.optimizer_states.Implementation`."""


def states_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the tensors that an optimizer of torch's keeps for its parameters."""
    return [
        state
        for states in optimizer.state.values()
        for state in states.values()
        if isinstance(state, Tensor)
    ]
