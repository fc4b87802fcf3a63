"""Which numbers of a matrix share a scale: all, a row, or 32 neighbours."""

from __future__ import annotations

from vramlab.units import short_size
from vramlab_course.lessons.l28_eight_bits_and_fewer.formulas import MX_BLOCK, Scaling, scales_bytes
from vramlab_course.plots import style
from vramlab_course.plots.diagram import Diagram
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import Look

_ROWS, _BLOCKS = 4, 4  # so many are drawn of a matrix
_LARGE, _SPOILT = Look(style.INK, text_color="white"), Look(style.GREY)
_NAMES: dict[Scaling, str] = {
    "tensor": "one scale for all",
    "rows": "one for each row",
    "blocks": f"one for {MX_BLOCK} neighbours (MX)",
}


def draw_scales(rows: int, columns: int, *, title: str = "") -> Picture:
    """Draw a matrix three times: numbers that share a scale with the one large number lose digits.

    Args:
        rows, columns: of the matrix whose scales are counted; fewer are drawn.
        title: what is to be seen.
    """
    title = title or "One large number: who shares its scale is rounded for it"
    diagram = Diagram(2.75, title)
    for number, (scaling, name) in enumerate(_NAMES.items()):
        left = 0.3 + number * 2.95
        _draw_matrix(diagram, left, scaling)
        size = short_size(scales_bytes(rows, columns, scaling))
        diagram.write(left + 1.25, 2.55, name, bold=True)
        diagram.write(left + 1.25, 0.62, f"{rows:,} x {columns:,}: {size} of scales")
    diagram.key(
        {"the large number": _LARGE, "shares its scale": _SPOILT, "does not": Look("white")}
    )
    return diagram.finish(describe_scales(rows, columns, title=title))


def describe_scales(rows: int, columns: int, *, title: str = "") -> str:
    """Describe what `draw_scales` draws."""
    parts = ", ".join(
        f"{name}: {short_size(scales_bytes(rows, columns, scaling))}"
        for scaling, name in _NAMES.items()
    )
    return (
        f"{title or 'One large number: who shares its scale is rounded for it'}. Scales of "
        f"{rows:,} x {columns:,} numbers: {parts}. With one for all, every number shares the large "
        f"one's; with one for each row, its row does; in blocks, {MX_BLOCK} neighbours do."
    )


def _draw_matrix(diagram: Diagram, left: float, scaling: Scaling) -> None:
    """Boxes are blocks of neighbours; the large number is in the second row's second block."""
    width, height = 0.62, 0.36
    at = (1, 1)
    for row in range(_ROWS):
        for block in range(_BLOCKS):
            shares = {
                "tensor": True,
                "rows": row == at[0],
                "blocks": (row, block) == at,
            }[scaling]
            x, y = left + block * width, 2.0 - row * height
            look = _SPOILT if shares else Look("white")
            diagram.box(x, y, width - 0.04, height - 0.05, "", look)
            if (row, block) == at:
                diagram.box(x + 0.2, y + 0.06, 0.16, 0.19, "", _LARGE)
