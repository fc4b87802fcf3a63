"""LoRA: a weight that learns, and two thin matrices that learn in its stead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots.diagram import Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, Look, size_label

_MOST = 3
_SIDE_IN = 1.05
_LEFT_IN, _TOP_IN, _ROW_IN = 2.05, 0.35, 1.45
_PITCH_IN = 1.55
_THIN_IN = 0.035
"""So wide is drawn what would be too thin to be seen."""
_COLUMNS = {
    "weight": CATEGORY_LOOKS[Category.PARAMETERS],
    "gradient": CATEGORY_LOOKS[Category.GRADIENTS],
    "first moment": CATEGORY_LOOKS[Category.OPTIMIZER_STATES],
    "second moment": CATEGORY_LOOKS[Category.OPTIMIZER_STATES],
}

Learning = Mapping[str, torch.optim.Optimizer]
"""Adam's, by what learns; with gradients, and states as they are after a step."""


def draw_adapters(weight: torch.Tensor, learning: Learning, *, title: str) -> Picture:
    """Draw, in a row for each optimizer, a weight and what is there for what learns.

    Areas are as large as tensors. A weight that its row's optimizer does not have is frozen: it has
    no gradient and no moments.

    Args:
        weight: a matrix.
        learning: at most three.
        title: what is to be seen.

    Raises:
        ValueError: that many rows cannot be drawn.
    """
    check_drawable(len(learning), "rows", 1, _MOST)
    diagram = Diagram(_TOP_IN + _ROW_IN * len(learning), title)
    for number, column in enumerate(_COLUMNS):
        x = _LEFT_IN + number * _PITCH_IN
        diagram.write(x + _SIDE_IN / 2, diagram.height_in - 0.15, column, bold=True)
    for row, (name, optimizer) in enumerate(learning.items()):
        y = diagram.height_in - _TOP_IN - row * _ROW_IN - _SIDE_IN
        words = f"{name}:\n{size_label(_learning_bytes(optimizer))} on top"
        diagram.write(0.2, y + _SIDE_IN / 2, words, ha="left", small=False)
        parameters = list(_parameters(optimizer))
        frozen = all(parameter is not weight for parameter in parameters)
        if frozen:
            _draw(diagram, _LEFT_IN, y, weight, weight, _COLUMNS["weight"])
            middle = _LEFT_IN + _SIDE_IN / 2, y + _SIDE_IN / 2
            diagram.write(*middle, "frozen", color=_COLUMNS["weight"].text_color)
        for number, look in enumerate(_COLUMNS.values()):
            x = _LEFT_IN + number * _PITCH_IN
            for parameter in parameters:
                there = _tensors(optimizer, parameter)[number]
                gap = 0.07 if frozen else 0.0  # beside the frozen weight, not on it
                tall = there.size(0) >= there.size(1)
                left = x - gap if frozen and tall else x
                bottom = y if tall else y + _SIDE_IN + gap
                _draw(diagram, left, bottom, there, weight, look)
    return diagram.finish(describe_adapters(weight, learning, title=title))


def describe_adapters(weight: torch.Tensor, learning: Learning, *, title: str) -> str:
    """Describe what `draw_adapters` draws."""
    told = " ".join(
        f"{name}: gradients and moments of {_shapes(optimizer)}, "
        f"{short_size(_learning_bytes(optimizer))} beside the weight."
        for name, optimizer in learning.items()
    )
    return f"{title}. A weight of {_shape(weight)}, {short_size(weight.nbytes)}. {told}"


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _tensors(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> list[torch.Tensor]:
    """Return a parameter, its gradient and its moments."""
    state = optimizer.state[parameter]
    assert parameter.grad is not None
    return [parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"]]


def _learning_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Gradients and moments."""
    return sum(
        tensor.nbytes
        for parameter in _parameters(optimizer)
        for tensor in _tensors(optimizer, parameter)[1:]
    )


def _shapes(optimizer: torch.optim.Optimizer) -> str:
    return " and ".join(map(_shape, _parameters(optimizer)))


def _shape(tensor: torch.Tensor) -> str:
    return " x ".join(f"{size:,}" for size in tensor.shape)


def _draw(
    diagram: Diagram, x: float, y: float, tensor: torch.Tensor, weight: torch.Tensor, look: Look
) -> None:
    height, width = (
        max(_SIDE_IN * size / whole, _THIN_IN)
        for size, whole in zip(tensor.shape, weight.shape, strict=True)
    )
    diagram.area(x, y, width, height, look, edged=min(height, width) >= 2 * _THIN_IN)
