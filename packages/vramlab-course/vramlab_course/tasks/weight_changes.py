"""How a training has changed a model's weights: for trials that ask how far, and where to."""

from __future__ import annotations

from collections.abc import Callable

from vramlab_classroom.judge.lazy import torch
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
