"""Gradient accumulation: activations are freed with each micro-batch, gradients stay."""

from __future__ import annotations

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots.diagram import Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, size_label

_MOST = 6
_HIGHEST_IN, _KEPT_Y_IN, _ADDED_Y_IN = 0.7, 1.9, 1.4


def draw_accumulation(
    micro_batches: int, activations_bytes: int, gradients_bytes: int, *, title: str = ""
) -> Picture:
    """Draw a step of several micro-batches: what each allocates, and what it adds to.

    Both kinds of boxes are equally wide, and as high as they have bytes.

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
    diagram = Diagram(3.35, title)
    kept, added = CATEGORY_LOOKS[Category.ACTIVATIONS], CATEGORY_LOOKS[Category.GRADIENTS]
    pitch = 7.7 / (micro_batches + 1)
    width = pitch - 0.25
    largest_bytes = max(activations_bytes, gradients_bytes)
    kept_in, added_in = (
        _HIGHEST_IN * size_bytes / largest_bytes
        for size_bytes in (activations_bytes, gradients_bytes)
    )
    for number in range(micro_batches):
        x = 1.1 + number * pitch
        middle = x + width / 2
        diagram.write(middle, 3.2, f"micro-batch {number + 1}", bold=True)
        diagram.area(x, _KEPT_Y_IN, width, kept_in, kept, edged=True)
        words = f"activations\n{size_label(activations_bytes)}"
        diagram.write(middle, _KEPT_Y_IN + kept_in + 0.19, words)
        diagram.area(x, _ADDED_Y_IN - added_in, width, added_in, added, edged=True)
        words = f".grad\n{size_label(gradients_bytes)}"
        diagram.write(middle, _ADDED_Y_IN - added_in - 0.19, words)
        sign = "writes" if number == 0 else "adds"
        start, end = (middle, _KEPT_Y_IN), (middle, _ADDED_Y_IN)
        diagram.arrow(start, end, f"backward\n{sign}", beside=(0.42, 0.0))
        right = _ADDED_Y_IN - added_in / 2
        diagram.arrow((x + width, right), (x + pitch, right))
    x = 1.1 + micro_batches * pitch
    step = diagram.box(x, right - 0.25, width, 0.5, "optimizer.step()\nzero_grad()")
    diagram.write(step.top[0], step.top[1] + 0.12, "once")
    diagram.write(0.15, 2.2, "allocated\nand freed", ha="left", bold=True)
    diagram.write(0.15, right, "stay:\none tensor", ha="left", bold=True)
    whole = size_label(micro_batches * activations_bytes)
    words = f"Areas are in proportion to bytes. All activations together would be {whole}."
    diagram.write(1.1, 0.12, words, ha="left")
    return diagram.finish(
        describe_accumulation(micro_batches, activations_bytes, gradients_bytes, title=title)
    )


def describe_accumulation(
    micro_batches: int, activations_bytes: int, gradients_bytes: int, *, title: str = ""
) -> str:
    """Describe what `draw_accumulation` draws."""
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
