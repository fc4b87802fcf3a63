"""An optimizer that keeps nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from vramlab_course.programs.each_parameter import EachParameter


class SignSGD(EachParameter):
    """Moves each number by the same amount, against its gradient's sign; keeps nothing.

    Source: arXiv 1802.04434.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        assert parameter.grad is not None
        parameter.add_(parameter.grad.sign(), alpha=-group["lr"])
