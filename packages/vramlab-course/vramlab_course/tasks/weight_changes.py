"""How a training has changed a model's weights: the same as ours, or how far, and where to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.results import parameters_of, to_host


def tanh_chain(width: int, layers: int) -> torch.nn.Sequential:
    """Make Linear layers without bias, a tanh after each, on the host; float32, random."""
    modules: list[torch.nn.Module] = []
    for _ in range(layers):
        modules += [torch.nn.Linear(width, width, bias=False), torch.nn.Tanh()]
    return torch.nn.Sequential(*modules)


def weight_changes(model: torch.nn.Module, train: Callable[[], object]) -> torch.Tensor:
    """Move a model to the GPU and train it there.

    Args:
        model: on the host; its parameters are of one shape.
        train: trains it, once it is on the GPU.

    Returns:
        By how much its parameters have changed, on the host: (parameters, *shape).
    """
    before = [parameter.detach().clone() for parameter in parameters_of(model)]
    model.to("cuda")
    train()
    after = [to_host(parameter) for parameter in parameters_of(model)]
    return torch.stack([new - old for new, old in zip(after, before, strict=True)])


def times_as_far(changes: torch.Tensor, right: torch.Tensor) -> float:
    """Return how far weights moved in the right direction, as a multiple of the correct step."""
    return float((changes * right).sum() / (right * right).sum())


SAME = 1e-6
"""A step of AdamW decays each number by 1e-3 * 1e-2 = 1e-5 of its size, and moves it by 1e-3."""

MOST = 0.75
"""Of a tensor's numbers that close. Adam divides gradients by their size, so where one is nearly 0,
rounding decides which way a step goes: a tenth of some layers after four steps through 39."""

MOST_OFF = 5e-3
"""Of a tensor, relative to its size: a fiftieth of it without training is further off."""


def require_same_training(found: Iterable[torch.Tensor], expected: Iterable[torch.Tensor]) -> None:
    """Require trained weights, on the host, up to what rounding changes in a training by Adam.

    Raises:
        NotFixed: they are others; says which, and how far off.
    """
    for index, (weight, wanted) in enumerate(zip(found, expected, strict=True)):
        if weight.shape != wanted.shape:
            shapes = f"{tuple(weight.shape)} instead of {tuple(wanted.shape)}"
            raise NotFixed(f"It fits, but trained weight {index} has the shape {shapes}.")
        weight, wanted = weight.double(), wanted.double()
        off = (weight - wanted).abs()
        typical = wanted.square().mean().sqrt()
        same = float((off <= SAME * (wanted.abs() + typical)).double().mean())
        size = float(off.norm() / wanted.norm())
        if not (same >= MOST and size <= MOST_OFF):
            raise NotFixed(
                "It fits, but the trained weights differ from those of the original program: "
                f"number {index} is off by {size:.1e} of its size, and {1 - same:.0%} of its "
                "elements by more than rounding explains. Are the batches, the optimizers and "
                "their settings the same, weight decay included?"
            )
