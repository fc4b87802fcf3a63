"""A Linear layer in 8 bits: three products, what is cast for each, and what stays in between."""

from __future__ import annotations

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.lessons.l28_eight_bits_and_fewer.formulas import FLOAT_SCALE_BYTES, Recipe
from vramlab_course.plots.diagram import STEP, Diagram
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, looks_for

_WEIGHT = CATEGORY_LOOKS[Category.PARAMETERS]
_ACTIVATION = CATEGORY_LOOKS[Category.ACTIVATIONS]
_GRADIENT = CATEGORY_LOOKS[Category.GRADIENTS]
_TEMPORARY = CATEGORY_LOOKS[Category.TEMPORARIES]
_CAST = looks_for(["casts"])["casts"]


def draw_eight_bit_linear(
    rows: int, inputs: int, outputs: int, keep: Recipe = "8 bits, kept", *, title: str = ""
) -> Picture:
    """Draw the forward and the backward pass of a Linear layer whose products are in 8 bits.

    Args:
        rows: of its input.
        inputs, outputs: of the layer.
        keep: what stays for the backward pass.
        title: what is to be seen.
    """
    title = title or _finding(rows, inputs, outputs, keep)
    diagram = Diagram(3.9, title)
    kept = keep == "8 bits, kept"
    size = _Sizes(rows, inputs, outputs)
    diagram.write(0.3, 3.75, "forward", ha="left", bold=True)
    x = diagram.box(
        0.3,
        2.85,
        1.25,
        0.62,
        f"x, 16 bits\n{size.given}",
        _ACTIVATION,
        dashed=kept,
        bold=not kept,
    )
    w = diagram.box(0.3, 1.95, 1.25, 0.62, f"W, float32\n{size.weight}", _WEIGHT)
    x8 = diagram.box(
        2.45, 2.85, 1.35, 0.62, f"x, E4M3\n{size.given8}", _ACTIVATION, dashed=not kept, bold=kept
    )
    w8 = diagram.box(
        2.45, 1.95, 1.35, 0.62, f"W, E4M3\n{size.weight8}", _CAST, dashed=not kept, bold=kept
    )
    diagram.arrow(x.right, x8.left, "amax,\ncast", beside=(0, 0.2))
    diagram.arrow(w.right, w8.left, "amax,\ncast", beside=(0, 0.2))
    forward = diagram.box(4.75, 2.4, 1.15, 0.62, "x W\u1d40\n8-bit product", STEP)
    diagram.arrow(x8.right, (4.75, 2.85))
    diagram.arrow(w8.right, (4.75, 2.55))
    y = diagram.box(6.9, 2.4, 1.5, 0.62, f"y, 16 bits\n{size.result}", _ACTIVATION)
    diagram.arrow(forward.right, y.left, "times both\nscales", beside=(0, 0.2))
    diagram.write(0.3, 1.6, "backward", ha="left", bold=True)
    g = diagram.box(0.3, 0.55, 1.25, 0.62, f"dy, 16 bits\n{size.result}", _TEMPORARY)
    g8 = diagram.box(2.45, 0.55, 1.35, 0.62, f"dy, E5M2\n{size.result8}", _TEMPORARY)
    diagram.arrow(g.right, g8.left, "amax,\ncast", beside=(0, 0.2))
    of_x = diagram.box(4.75, 1.0, 1.15, 0.5, "dy W", STEP)
    of_w = diagram.box(4.75, 0.25, 1.15, 0.5, "dy\u1d40 x", STEP)
    diagram.arrow(g8.right, of_x.left)
    diagram.arrow(g8.right, of_w.left)
    dx = diagram.box(6.9, 1.0, 1.5, 0.5, f"dx, 16 bits\n{size.given}", _TEMPORARY)
    dw = diagram.box(6.9, 0.25, 1.5, 0.5, f"dW, float32\n{size.weight}", _GRADIENT)
    diagram.arrow(of_x.right, dx.left)
    diagram.arrow(of_w.right, dw.left)
    again = "W and x as they were\nkept in 8 bits" if kept else "W and x,\ncast again"
    diagram.write(5.32, 1.78, again)
    diagram.write(
        4.5, 0.1, "bold: stays for the backward pass; dashed: gone after the forward pass"
    )
    return diagram.finish(describe_eight_bit_linear(rows, inputs, outputs, keep, title=title))


def describe_eight_bit_linear(
    rows: int, inputs: int, outputs: int, keep: Recipe = "8 bits, kept", *, title: str = ""
) -> str:
    """Describe what `draw_eight_bit_linear` draws."""
    size = _Sizes(rows, inputs, outputs)
    stays = (
        f"the casts stay for the backward pass, {size.given8} and {size.weight8}"
        if keep == "8 bits, kept"
        else f"x itself stays for the backward pass, {size.given}, and is cast again"
    )
    return (
        f"{title or _finding(rows, inputs, outputs, keep)}. Forward: x of {rows:,} x {inputs:,} "
        f"and W of {outputs:,} x {inputs:,} are cast to E4M3, each by its largest number; their "
        f"product, times both scales, is y in 16 bits; {stays}. Backward: dy is cast to E5M2, "
        "and multiplied with W for dx, in 16 bits, and with x for dW, in float32."
    )


def _finding(rows: int, inputs: int, outputs: int, keep: Recipe) -> str:
    kept = rows * inputs + inputs * outputs + 2 * FLOAT_SCALE_BYTES
    if keep != "8 bits, kept":
        kept = 2 * rows * inputs
    return f"Three products in 8 bits; {short_size(kept)} stay from forward to backward"


class _Sizes:
    """The words for what each matrix takes."""

    def __init__(self, rows: int, inputs: int, outputs: int) -> None:
        self.given = short_size(2 * rows * inputs)
        self.given8 = short_size(rows * inputs)
        self.weight = short_size(4 * inputs * outputs)
        self.weight8 = short_size(inputs * outputs)
        self.result = short_size(2 * rows * outputs)
        self.result8 = short_size(rows * outputs)
