"""Two matrices cut over GPUs: columns of the first, rows of the second, and what is sent."""

from __future__ import annotations

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.diagram import Diagram
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, size_label

_MOST = 8
_TIMES = "\N{MULTIPLICATION SIGN}"


def draw_cut_matrices(
    tokens: int, width: int, inner: int, ranks: int, item_bytes: int = 2, *, title: str = ""
) -> Picture:
    """Draw a feed-forward block on several GPUs: what GPU 0 holds is filled, the rest dashed.

    For example `draw_cut_matrices(tokens=8 * 2048, width=4096, inner=16384, ranks=4)`.

    Args:
        tokens: batch times length.
        width: of the model.
        inner: of the hidden layer; cut over the ranks.
        ranks: GPUs that share the block, 2 to 8.
        item_bytes: of an element.
        title: what is to be seen.

    Raises:
        ValueError: that many ranks cannot be drawn, or the hidden layer cannot be cut evenly.
    """
    if not 2 <= ranks <= _MOST or inner % ranks:
        raise ValueError(f"{inner} columns over {ranks} GPUs: give 2 to {_MOST} that divide them")
    title = title or _finding(tokens, width, inner, ranks, item_bytes)
    parameters, kept = CATEGORY_LOOKS[Category.PARAMETERS], CATEGORY_LOOKS[Category.ACTIVATIONS]
    diagram = Diagram(2.5, title)
    y, low = 1.0, 0.62

    def size(rows: int, columns: int) -> str:
        return size_label(rows * columns * item_bytes)

    diagram.box(0.3, y, 0.95, 1.1, f"X\n{size(tokens, width)}", kept)
    diagram.write(0.775, low, "on every GPU")
    diagram.write(1.46, y + 0.55, _TIMES, small=False, bold=True)
    part_in = 1.5 / ranks
    for rank in range(ranks):
        mine = rank == 0
        diagram.box(1.7 + rank * part_in, y, part_in - 0.03, 1.1, "", parameters, dashed=not mine)
        diagram.box(3.75 + rank * part_in, y, part_in - 0.03, 1.1, "", kept, dashed=not mine)
        diagram.box(
            5.75,
            y + 1.1 - (rank + 1) * 1.1 / ranks,
            0.95,
            1.1 / ranks - 0.03,
            "",
            parameters,
            dashed=not mine,
        )
    diagram.write(2.45, y + 1.26, f"A, cut by columns: {size(width, inner // ranks)} here")
    diagram.write(
        2.45, low, f"a GPU computes {inner // ranks:,}\nof {inner:,} columns", va="center"
    )
    diagram.write(3.47, y + 0.55, "=", small=False, bold=True)
    diagram.write(4.5, y + 1.26, f"H = gelu(X A): {size(tokens, inner // ranks)} here")
    diagram.write(4.5, low, "element by element:\nnothing is sent")
    diagram.write(5.5, y + 0.55, _TIMES, small=False, bold=True)
    diagram.write(6.22, y + 1.26, f"B, by rows: {size(inner // ranks, width)} here")
    diagram.write(6.22, low, "a sum of\nall columns' parts")
    diagram.write(6.95, y + 0.55, "=", small=False, bold=True)
    for rank in reversed(range(ranks)):
        shift = rank * 0.24 / ranks
        diagram.box(
            7.2 + shift, y + shift, 0.95, 1.1, "" if rank else f"Y₀\n{size(tokens, width)}", kept,
            dashed=rank > 0,
        )  # fmt: skip
    diagram.write(7.85, low, f"{ranks} parts of a sum:\nall-reduce (g)", bold=True)
    diagram.arrow((7.7, 0.36), (0.78, 0.36), color=style.FAINT)
    diagram.write(4.5, 0.2, "backward: the gradients of X are parts of a sum, too: all-reduce (f)")
    return diagram.finish(
        describe_cut_matrices(tokens, width, inner, ranks, item_bytes, title=title)
    )


def describe_cut_matrices(
    tokens: int, width: int, inner: int, ranks: int, item_bytes: int = 2, *, title: str = ""
) -> str:
    """Describe what `draw_cut_matrices` draws."""
    weights, hidden = inner // ranks * width * item_bytes, tokens * inner // ranks * item_bytes
    return (
        f"{title or _finding(tokens, width, inner, ranks, item_bytes)}. X ({tokens:,} x {width:,}) "
        f"is on each of {ranks} GPUs. A is cut by columns, B by rows: {short_size(weights)} of "
        f"each on a GPU. The hidden layer is never whole: {short_size(hidden)} there. Each has a "
        "part of the sum Y: an all-reduce in forward, and one of the gradient of X in backward, of "
        f"{short_size(tokens * width * item_bytes)} each."
    )


def _finding(tokens: int, width: int, inner: int, ranks: int, item_bytes: int) -> str:
    sent = size_label(tokens * width * item_bytes)
    return (
        f"Columns, then rows: one all-reduce of {sent} forward, one backward, and no whole hidden "
        "layer"
    )
