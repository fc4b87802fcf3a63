"""Gradient accumulation: activations come and go with each micro-batch, gradients stay."""

from __future__ import annotations

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots.diagram import Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, size_label

_MOST = 6


def draw_accumulation(
    micro_batches: int, activations_bytes: int, gradients_bytes: int, *, title: str = ""
) -> Picture:
    """Draw a step of several micro-batches: what is there in each, and what is added to what.

    Args:
        micro_batches: 2 to 6.
        activations_bytes: that the forward pass of one keeps, such as measured.
        gradients_bytes: of all parameters.
        title: what is to be seen.

    Raises:
        ValueError: that many micro-batches cannot be drawn.
    """
    check_drawable(micro_batches, "micro-batches", 2, _MOST)
    title = title or _finding(micro_batches, activations_bytes)
    diagram = Diagram(2.75, title)
    kept, added = CATEGORY_LOOKS[Category.ACTIVATIONS], CATEGORY_LOOKS[Category.GRADIENTS]
    pitch = 7.7 / (micro_batches + 1)
    width = pitch - 0.25
    for number in range(micro_batches):
        x = 1.1 + number * pitch
        diagram.write(x + width / 2, 2.55, f"micro-batch {number + 1}", bold=True)
        words = f"activations\n{size_label(activations_bytes)}"
        activations = diagram.box(x, 1.7, width, 0.6, words, kept)
        words = f".grad\n{size_label(gradients_bytes)}"
        gradients = diagram.box(x, 0.55, width, 0.6, words, added)
        sign = "writes" if number == 0 else "adds"
        diagram.arrow(activations.bottom, gradients.top, f"backward\n{sign}", beside=(0.42, 0.0))
        diagram.arrow(gradients.right, (x + pitch, gradients.right[1]))
    x = 1.1 + micro_batches * pitch
    step = diagram.box(x, 0.55, width, 0.6, "optimizer.step()\nzero_grad()")
    diagram.write(step.top[0], 1.25, "once")
    diagram.write(0.15, 2.0, "come\nand go", ha="left", bold=True)
    diagram.write(0.15, 0.85, "stay:\none tensor", ha="left", bold=True)
    whole = size_label(micro_batches * activations_bytes)
    words = f"Never more than one micro-batch's activations: {whole} for all of them at once."
    diagram.write(1.1, 0.2, words, ha="left")
    return diagram.finish(
        describe_accumulation(micro_batches, activations_bytes, gradients_bytes, title=title)
    )


def describe_accumulation(
    micro_batches: int, activations_bytes: int, gradients_bytes: int, *, title: str = ""
) -> str:
    """Say in words what `draw_accumulation` draws."""
    return (
        f"{title or _finding(micro_batches, activations_bytes)}. {micro_batches} micro-batches, "
        f"each in turn: it has activations of {short_size(activations_bytes)}, freed by its "
        f"backward pass, which adds to the same gradients of {short_size(gradients_bytes)}. Then "
        "one step of the optimizer."
    )


def _finding(micro_batches: int, activations_bytes: int) -> str:
    return (
        f"{micro_batches} micro-batches share room for the activations of one: "
        f"{size_label(activations_bytes)}"
    )
