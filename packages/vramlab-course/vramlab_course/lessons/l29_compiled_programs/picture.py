"""Element-wise ops one after the other, as kernels of their own and as one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots.diagram import STEP, Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS

_ENDS = CATEGORY_LOOKS[Category.ACTIVATIONS]
_MOST = 8
_LEFT_IN, _RIGHT_IN, _TENSOR_IN = 0.35, 8.75, 0.75


def draw_fused(
    ops: Sequence[str], tensor_bytes: int, peak_bytes: int, *, title: str = ""
) -> Picture:
    """Draw a chain of ops twice: a kernel for each, and one kernel for all.

    Args:
        ops: their names; 3 to 8.
        tensor_bytes: what each reads and writes.
        peak_bytes: above the input, output included, where each op is a kernel.
        title: what is to be seen.

    Raises:
        ValueError: that many ops cannot be drawn.
    """
    check_drawable(len(ops), "ops", 3, _MOST)
    title = title or _finding(tensor_bytes, peak_bytes)
    diagram = Diagram(2.6, title)
    rows = (
        (1.75, ops, f"eager: {len(ops)} kernels, and a tensor between each two (the arrows)"),
        (0.75, [", ".join(ops)], "compiled: one kernel, numbers wait in registers"),
    )
    for y, names, words in rows:
        diagram.write(_LEFT_IN, y + 0.64, words, ha="left", bold=True)
        step = (_RIGHT_IN - _LEFT_IN - 2 * _TENSOR_IN - 0.2) / len(names)
        boxes = [diagram.box(_LEFT_IN, y, _TENSOR_IN, 0.45, short_size(tensor_bytes), _ENDS)]
        for number, name in enumerate(names):
            left = _LEFT_IN + _TENSOR_IN + number * step + 0.2
            boxes.append(diagram.box(left, y, step - 0.2, 0.45, name, STEP))
        left = _RIGHT_IN - _TENSOR_IN
        boxes.append(diagram.box(left, y, _TENSOR_IN, 0.45, short_size(tensor_bytes), _ENDS))
        for one, next_one in pairwise(boxes):
            diagram.arrow(one.right, next_one.left)
    diagram.key({"input and output": _ENDS, "kernel": STEP})
    return diagram.finish(describe_fused(ops, tensor_bytes, peak_bytes, title=title))


def describe_fused(
    ops: Sequence[str], tensor_bytes: int, peak_bytes: int, *, title: str = ""
) -> str:
    """Describe what `draw_fused` draws."""
    return (
        f"{title or _finding(tensor_bytes, peak_bytes)}. Eager: {', '.join(ops)} are {len(ops)} "
        f"kernels with a tensor of {short_size(tensor_bytes)} between each two. Compiled: one "
        "kernel reads the input and writes the output."
    )


def _finding(tensor_bytes: int, peak_bytes: int) -> str:
    spared = peak_bytes - tensor_bytes
    return (
        f"Fused, the temporaries are gone: {short_size(tensor_bytes)} above the input, "
        f"{short_size(spared)} less"
    )
