"""Gradients of several GPUs added up: through one of them, or around a ring."""

from __future__ import annotations

import math

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots.diagram import Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, size_label

_MOST = 8
_GPU_IN = (0.74, 0.36)


def draw_star_and_ring(gradients_bytes: int, ranks: int = 4, *, title: str = "") -> Picture:
    """Draw DataParallel's star beside DDP's ring, with the bytes on their links in a step.

    A ring's GPU sends 2 (N - 1) / N of the gradients: pieces that are added up on the way around,
    and then their sums. Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms",
    2009. NCCL may choose trees, or let a switch add up (NVLS); then other amounts are sent.

    Args:
        gradients_bytes: of all parameters.
        ranks: GPUs, 2 to 8.
        title: what is to be seen.

    Raises:
        ValueError: that many GPUs cannot be drawn.
    """
    check_drawable(ranks, "GPUs", 2, _MOST)
    title = title or _finding(gradients_bytes, ranks)
    diagram = Diagram(3.5, title)
    _draw_star(diagram, (2.2, 1.75), gradients_bytes, ranks)
    _draw_ring(diagram, (6.75, 1.75), gradients_bytes, ranks)
    return diagram.finish(describe_star_and_ring(gradients_bytes, ranks, title=title))


def describe_star_and_ring(gradients_bytes: int, ranks: int = 4, *, title: str = "") -> str:
    """Describe what `draw_star_and_ring` draws."""
    return (
        f"{title or _finding(gradients_bytes, ranks)}. Left, a star: {ranks - 1} GPUs send "
        f"{short_size(gradients_bytes)} to GPU 0, which sends as many parameters to each. Right, a "
        f"ring of {ranks} GPUs: each sends {short_size(_ring_bytes(gradients_bytes, ranks))} to "
        "the next."
    )


def _ring_bytes(gradients_bytes: int, ranks: int) -> int:
    return 2 * (ranks - 1) * gradients_bytes // ranks


def _finding(gradients_bytes: int, ranks: int) -> str:
    star = size_label(2 * (ranks - 1) * gradients_bytes)
    return (
        f"In a star GPU 0 moves {star}; in a ring every GPU sends "
        f"{size_label(_ring_bytes(gradients_bytes, ranks))}"
    )


def _around(middle: tuple[float, float], number: int, count: int) -> tuple[float, float]:
    angle = math.pi / 2 - 2 * math.pi * number / count
    return middle[0] + 1.55 * math.cos(angle), middle[1] + 1.2 * math.sin(angle)


def _draw_gpu(diagram: Diagram, at: tuple[float, float], number: int) -> None:
    width, height = _GPU_IN
    diagram.box(at[0] - width / 2, at[1] - height / 2, width, height, f"GPU {number}", bold=True)


def _draw_star(diagram: Diagram, middle: tuple[float, float], size: int, ranks: int) -> None:
    for number in range(1, ranks):
        there = _around(middle, number - 1, ranks - 1)
        _link(diagram, there, middle, both=True)
        _draw_gpu(diagram, there, number)
    _draw_gpu(diagram, middle, 0)
    through = size_label(2 * (ranks - 1) * size)
    diagram.write(middle[0], middle[1] - 0.42, f"{through}\nthrough GPU 0", small=False, bold=True)
    each = size_label(size)
    diagram.write(
        middle[0],
        0.12,
        f"star (DataParallel): gradients in, parameters out, {each} each on a link",
    )


def _draw_ring(diagram: Diagram, middle: tuple[float, float], size: int, ranks: int) -> None:
    for number in range(ranks):
        here = _around(middle, number, ranks)
        _link(diagram, here, _around(middle, (number + 1) % ranks, ranks))
    for number in range(ranks):
        _draw_gpu(diagram, _around(middle, number, ranks), number)
    sent = size_label(_ring_bytes(size, ranks))
    diagram.write(*middle, f"{sent}\non each link", small=False, bold=True)
    diagram.write(middle[0], 0.12, f"ring (DDP): {ranks} pieces go around, twice")


def _link(
    diagram: Diagram, start: tuple[float, float], end: tuple[float, float], *, both: bool = False
) -> None:
    """Draw an arrow between two GPUs, from edge to edge."""
    width, height = _GPU_IN
    dx, dy = end[0] - start[0], end[1] - start[1]
    share = min(
        width / 2 / abs(dx) if abs(dx) > 1e-9 else 1, height / 2 / abs(dy) if abs(dy) > 1e-9 else 1
    )
    diagram.arrow(
        (start[0] + dx * share, start[1] + dy * share),
        (end[0] - dx * share, end[1] - dy * share),
        both=both,
        color=CATEGORY_LOOKS[Category.GRADIENTS].color,
        width=2.0,
    )
