"""What optimizers keep for one weight, tensor by tensor, with areas as large as their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from vramlab.measure import Category
from vramlab_course.plots.diagram import Diagram
from vramlab_course.plots.picture import WIDTH_IN, Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, Look

States = Mapping[str, Any]
"""Of one parameter, by name, as `optimizer.state[parameter]` has them: tensors, or tuples of them;
what is no tensor, or a single number such as a count of steps, is passed over."""

_MOST = 3
_LEFT_IN = 0.3
_NAME_IN = 0.35
_HEIGHT_IN = 1.6
_WIDTH_IN = 1.0
_GAP_IN = 0.16
_PANEL_IN = 1.65
"""Of the weight, with the words below it."""
_LINE_IN = 0.17
_LEAST_IN = 0.02
"""So wide is drawn what would be too thin to be seen."""


def draw_states(weight: torch.Tensor, states: Mapping[str, States], *, title: str) -> Picture:
    """Draw a weight, and beside it what each optimizer keeps for it.

    For example `draw_states(weight, {"AdamW": optimizer.state[weight]}, title="Twice the weight")`.

    Args:
        weight: a matrix.
        states: by the optimizer's name; at most three.
        title: what is to be seen.

    Raises:
        ValueError: the weight is no matrix, or there are more optimizers than can be drawn.
    """
    if weight.dim() != 2 or not 1 <= len(states) <= _MOST:
        raise ValueError(
            f"a weight with {weight.dim()} dimensions and {len(states)} optimizers; a matrix and 1 "
            f"to {_MOST} can be drawn"
        )
    kept = {name: list(_tensors(each)) for name, each in states.items()}
    most = max(len(tensors) for tensors in kept.values())
    diagram = Diagram(_NAME_IN + _HEIGHT_IN + (most + 1) * _LINE_IN, title)
    panels = {"the weight": [("", weight)], **kept}
    x, pitch = _LEFT_IN, (WIDTH_IN - _LEFT_IN - _PANEL_IN) / len(kept)
    category = Category.PARAMETERS
    for name, tensors in panels.items():
        _draw_panel(diagram, x, name, tensors, weight, CATEGORY_LOOKS[category])
        x += _PANEL_IN if category is Category.PARAMETERS else pitch
        category = Category.OPTIMIZER_STATES
    return diagram.finish(describe_states(weight, states, title=title))


def describe_states(weight: torch.Tensor, states: Mapping[str, States], *, title: str) -> str:
    """Describe what `draw_states` draws."""
    told = " ".join(
        f"{name} keeps {', '.join(_words(*item) for item in _tensors(each)) or 'nothing'}."
        for name, each in states.items()
    )
    return f"{title}. For a weight of {_words('', weight)}: {told}"


def _tensors(states: States) -> Iterator[tuple[str, torch.Tensor]]:
    for name, held in states.items():
        tensors = held if isinstance(held, tuple) else (held,)
        for number, tensor in enumerate(tensors):
            if isinstance(tensor, torch.Tensor) and tensor.dim():
                yield (name if number == 0 else "and"), tensor


def _words(name: str, tensor: torch.Tensor) -> str:
    shape = " x ".join(f"{size:,}" for size in tensor.shape)
    words = f"{shape} {str(tensor.dtype).removeprefix('torch.')}"
    return f"{name}{'' if name == 'and' else ':'} {words}" if name else words


def _draw_panel(
    diagram: Diagram,
    x: float,
    name: str,
    tensors: Sequence[tuple[str, torch.Tensor]],
    weight: torch.Tensor,
    look: Look,
) -> None:
    top = diagram.height_in - _NAME_IN
    diagram.write(x, top + 0.16, name, ha="left", small=False, bold=True)
    left, line = x, top - _HEIGHT_IN - _LINE_IN
    for words, tensor in tensors:
        width, height = _size_in(tensor, weight)
        edged = min(width, height) > 2 * _LEAST_IN
        diagram.area(left, top - height, width, height, look, edged=edged)
        left += width + _GAP_IN
        diagram.write(x, line, _words(words, tensor), ha="left")
        line -= _LINE_IN


def _size_in(tensor: torch.Tensor, weight: torch.Tensor) -> tuple[float, float]:
    """Width and height: a row of the weight is a row of the tensor, if it has as many."""
    rows = weight.size(0)
    is_row = tensor.numel() % rows != 0 or tensor.size(0) == 1
    height = _HEIGHT_IN / rows if is_row else _HEIGHT_IN
    whole = _WIDTH_IN * _HEIGHT_IN * tensor.nbytes / weight.nbytes
    return max(whole / height, _LEAST_IN), max(height, _LEAST_IN)
