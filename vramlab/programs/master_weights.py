"""Training in 16 bit with float32 copies of the weights, as arXiv 1910.02054 (ZeRO) counts it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from vramlab.programs.optimizers import states_of


class MasterWeights:
    """An optimizer that works on float32 copies of 16-bit parameters, and copies them back.

    Args:
        parameters: of the model.
        make: makes the optimizer from the copies, such as `torch.optim.AdamW`.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    ) -> None:
        self.parameters = list(parameters)
        self.copies = [nn.Parameter(parameter.detach().float()) for parameter in self.parameters]
        self.optimizer = make(self.copies)

    def states(self) -> list[Tensor]:
        """Return the copies, and what the optimizer keeps for them."""
        return [*self.copies, *states_of(self.optimizer)]

    @torch.no_grad()
    def step(self) -> None:
        """Update the copies with float32 gradients, then the parameters."""
        for parameter, copy in zip(self.parameters, self.copies, strict=True):
            copy.grad = None if parameter.grad is None else parameter.grad.float()
        self.optimizer.step()
        self.optimizer.zero_grad()
        for parameter, copy in zip(self.parameters, self.copies, strict=True):
            parameter.copy_(copy)

    def zero_grad(self) -> None:
        """Let go of the parameters' gradients."""
        for parameter in self.parameters:
            parameter.grad = None


class MasterAdamW(torch.optim.Optimizer):
    """AdamW on float32 copies of 16-bit parameters, with the interface of torch's optimizers.

    One parameter after the other, so that one gradient at a time is there in float32.

    Args:
        params: of the model.
        lr: the learning rate.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})
        self._masters: dict[nn.Parameter, MasterWeights] = {}

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; `closure` is not used."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._master(parameter, group["lr"]).step()

    def states(self) -> list[Tensor]:
        """Return the copies, and what is kept for them."""
        return [state for master in self._masters.values() for state in master.states()]

    def _master(self, parameter: nn.Parameter, lr: float) -> MasterWeights:
        if parameter not in self._masters:
            self._masters[parameter] = MasterWeights(
                [parameter], lambda copies: torch.optim.AdamW(copies, lr=lr)
            )
        return self._masters[parameter]
