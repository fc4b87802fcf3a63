"""A step in mixed precision: which numbers have 16 bits, which 32, and where they are cast."""

from __future__ import annotations

from collections.abc import Mapping

from vramlab.measure import Category
from vramlab_course.plots.diagram import Box, Diagram
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, Look

_BYTE_IN = 0.26
"""Width of a byte per parameter; all boxes of memory are equally high."""
_HIGH_IN = 0.46
_UPPER_IN, _LOWER_IN = 2.15, 0.85

CAST_BYTES = 2


def draw_mixed_precision(
    parts: Mapping[str, int], *, scaled: bool = True, title: str = ""
) -> Picture:
    """Draw the loop of a training step under autocast, its memory in bytes per parameter.

    Source: Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740, figure 1; what each
    tensor is under autocast, torch.autocast and torch.amp.GradScaler of PyTorch 2.13.

    Args:
        parts: bytes per parameter of "weights", "gradients" and "AdamW".
        scaled: whether the loss is scaled, as for float16.
        title: what is to be seen.
    """
    title = title or _FINDING
    diagram = Diagram(3.15, title)
    looks = CATEGORY_LOOKS
    weights = _memory(diagram, 0.35, _UPPER_IN, parts["weights"], looks[Category.PARAMETERS])
    diagram.write(weights.top[0], weights.top[1] + 0.26, "weights: float32,\nmaster weights")
    casts = _memory(diagram, 2.55, _UPPER_IN, CAST_BYTES, looks[Category.ACTIVATIONS].paler(0.4))
    diagram.write(casts.top[0], casts.top[1] + 0.26, "casts: 16 bits,\nuntil backward")
    diagram.arrow(weights.right, casts.left, "cast")
    forward = diagram.box(4.1, _UPPER_IN, 1.35, _HIGH_IN, "forward pass", bold=True)
    diagram.write(forward.top[0], forward.top[1] + 0.26, "products in 16 bits,\nnorms in float32")
    diagram.arrow(casts.right, forward.left)
    loss = diagram.box(6.4, _UPPER_IN, 1.35, _HIGH_IN, "loss", bold=True)
    diagram.write(loss.top[0], loss.top[1] + 0.16, "float32")
    diagram.arrow(forward.right, loss.left)
    backward = diagram.box(6.4, _LOWER_IN, 1.35, _HIGH_IN, "backward pass", bold=True)
    scale = "times the\nloss scale" if scaled else ""
    diagram.arrow(loss.bottom, backward.top, scale, beside=(0.5, 0.0))
    x = 5.3 - parts["gradients"] * _BYTE_IN
    gradients = _memory(diagram, x, _LOWER_IN, parts["gradients"], looks[Category.GRADIENTS])
    diagram.write(gradients.bottom[0], _LOWER_IN - 0.25, "gradients: float32,\nlike the weights")
    diagram.arrow(backward.left, gradients.right, "cast back")
    words = "unscale,\nskip or step" if scaled else "step"
    step = diagram.box(2.3, _LOWER_IN, 1.15, _HIGH_IN, words, bold=True)
    diagram.arrow(gradients.left, step.right)
    x = step.bottom[0] - parts["AdamW"] * _BYTE_IN / 2
    states = _memory(diagram, x, 0.1, parts["AdamW"], looks[Category.OPTIMIZER_STATES])
    diagram.arrow(states.top, step.bottom, both=True)
    diagram.write(x - 0.08, states.left[1], "AdamW's states:\nfloat32", ha="right")
    corner = weights.bottom[0], step.left[1]
    diagram.path(step.left, corner, weights.bottom)
    diagram.write(corner[0] + 0.1, step.left[1] + 0.14, "update", ha="left")
    diagram.write(8.9, 0.3, "areas: bytes per parameter", ha="right")
    return diagram.finish(describe_mixed_precision(parts, scaled=scaled, title=title))


_FINDING = "Mixed precision: products in 16 bits, everything that lasts in float32"


def _memory(diagram: Diagram, x: float, y: float, size_bytes: int, look: Look) -> Box:
    width = size_bytes * _BYTE_IN
    height = _HIGH_IN
    diagram.area(x, y, width, height, look, edged=True)
    diagram.write(x + width / 2, y + height / 2, f"{size_bytes} B", color=look.text_color)
    return Box(x, y, width, height)


def describe_mixed_precision(
    parts: Mapping[str, int], *, scaled: bool = True, title: str = ""
) -> str:
    """Describe what `draw_mixed_precision` draws."""
    scale = ", multiplied by the loss scale" if scaled else ""
    return (
        f"{title or _FINDING}. The weights, {parts['weights']} B per parameter in float32, are "
        f"cast to 16 bits, {CAST_BYTES} B, for the forward pass. Its loss is in float32{scale}. "
        f"The backward pass gives gradients in float32, {parts['gradients']} B. The optimizer "
        f"updates the float32 weights, with states of {parts['AdamW']} B."
    )
