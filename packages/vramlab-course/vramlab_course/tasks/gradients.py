"""Hold the gradients that a repaired program has made against those of the program as it was."""

from __future__ import annotations

from collections.abc import Mapping

from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.repair import Run
from vramlab_course.tasks.results import CLOSE, named_parameters_of, require_close, to_host

Gradients = Mapping[str, "torch.Tensor"]
"""By the names of their parameters, on the host."""


def collect_gradients(run: Run, returned: object) -> Gradients:
    """Take the gradients of the model that a program was called with first to the host.

    Those of all parameters that have one: see `Repair.collect`.
    """
    named = named_parameters_of(run.inputs[0])
    return {name: to_host(p.grad) for name, p in named if p.grad is not None}


def require_gradients(
    found: Gradients, expected: Gradients, within: float = CLOSE, hint: str = ""
) -> None:
    """Require the same gradients.

    Args:
        found: of all parameters that have one.
        expected: the right ones.
        within: how far each number may be off: see `require_close`.
        hint: a sentence for who has others.

    Raises:
        NotFixed: some are others, or missing; says which.
    """
    if missing := [name for name in expected if name not in found]:
        raise NotFixed(
            f"It fits, but {len(missing)} of {len(expected)} parameters have no gradient, "
            f"{missing[0]} among them."
        )
    if extra := [name for name in found if name not in expected]:
        raise NotFixed(f"It fits, but {extra[0]} has a gradient and should have none.")
    for name, wanted in expected.items():
        others = " ".join(filter(None, ("It fits, but the gradients are wrong.", hint)))
        message = f"{others} For {name}:"
        require_close(found[name], wanted, message, within=within)
