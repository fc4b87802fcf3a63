"""Element-wise ops one after the other, as kernels of their own and as one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots.diagram import STEP, Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS

_TENSOR = CATEGORY_LOOKS[Category.TEMPORARIES]
_ENDS = CATEGORY_LOOKS[Category.ACTIVATIONS]
_MOST = 6


def draw_fused(ops: Sequence[str], tensor_bytes: int, *, title: str = "") -> Picture:
    """Draw a chain of ops twice: with a tensor between each two, and fused into one kernel.

    Args:
        ops: their names; 3 to 6.
        tensor_bytes: what each reads and writes.
        title: what is to be seen.

    Raises:
        ValueError: that many ops cannot be drawn.
    """
    check_drawable(len(ops), "ops", 3, _MOST)
    title = title or _finding(ops, tensor_bytes)
    diagram = Diagram(2.6, title)
    size = short_size(tensor_bytes)
    step = 8.2 / (2 * len(ops) + 1)
    width = step * 0.72
    diagram.write(0.3, 2.42, "eager: a kernel for each op", ha="left", bold=True)
    boxes = []
    for number in range(2 * len(ops) + 1):
        is_op = number % 2 == 1
        text = ops[number // 2] if is_op else size
        end = number in (0, 2 * len(ops))
        look = STEP if is_op else _ENDS if end else _TENSOR
        boxes.append(diagram.box(0.35 + number * step, 1.75, width, 0.45, text, look))
    for left, right in pairwise(boxes):
        diagram.arrow(left.right, right.left)
    diagram.write(
        0.3, 1.42, "compiled: one kernel, numbers wait in registers", ha="left", bold=True
    )
    first = diagram.box(0.35, 0.75, width, 0.45, size, _ENDS)
    one = diagram.box(
        0.35 + step, 0.75, step * (2 * len(ops) - 1) - 0.28 * step, 0.45, ", ".join(ops), STEP
    )
    last = diagram.box(0.35 + 2 * len(ops) * step, 0.75, width, 0.45, size, _ENDS)
    diagram.arrow(first.right, one.left)
    diagram.arrow(one.right, last.left)
    diagram.key({"input and output": _ENDS, "temporary": _TENSOR, "kernel": STEP})
    return diagram.finish(describe_fused(ops, tensor_bytes, title=title))


def describe_fused(ops: Sequence[str], tensor_bytes: int, *, title: str = "") -> str:
    """Say in words what `draw_fused` draws."""
    return (
        f"{title or _finding(ops, tensor_bytes)}. Eager: {', '.join(ops)} are kernels, with a "
        f"tensor of {short_size(tensor_bytes)} between each two. Compiled: one kernel reads the "
        "input and writes the output."
    )


def _finding(ops: Sequence[str], tensor_bytes: int) -> str:
    return f"Fusing {len(ops)} ops spares {len(ops) - 1} tensors of {short_size(tensor_bytes)}"
