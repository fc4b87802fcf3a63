"""Hold the gradients that a repaired program has made against those of the program as it was."""

from __future__ import annotations

from collections.abc import Sequence

from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.repair import Run


def collect_gradients(run: Run, returned: object) -> list[torch.Tensor]:
    """Take the gradients of the model that a program was called with first to the host.

    Those of all parameters that have one: see `Repair.collect`.
    """
    model = run.inputs[0]
    return [p.grad.detach().cpu() for p in model.parameters() if p.grad is not None]


def require_gradients(
    found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], tolerance: float
) -> None:
    """Require the same gradients, in the same order.

    Args:
        found: on the host, of all parameters that have one.
        expected: likewise.
        tolerance: relative to each number, and to the largest of its tensor.

    Raises:
        NotFixed: some are others, or missing.
    """
    same = len(found) == len(expected) and all(
        torch.allclose(gradient, wanted, rtol=tolerance, atol=tolerance * float(wanted.abs().max()))
        for gradient, wanted in zip(found, expected, strict=True)
    )
    if not same:
        raise NotFixed("It fits, but the gradients are others, or are missing.")
