"""The base of the course's own optimizers, which update one parameter after the other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class EachParameter(torch.optim.Optimizer):
    """An optimizer that has only to say how one parameter is updated."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    @abstractmethod
    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Change a parameter that has a gradient, by the options of its group."""
