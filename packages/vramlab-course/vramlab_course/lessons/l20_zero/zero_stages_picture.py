"""Who holds and who sends what, when a model is trained with DDP or with a stage of ZeRO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots.diagram import Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, size_label

PARTS = (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATES)
_MOST = 8
_ROW_IN = 0.72


@dataclass(frozen=True)
class _Stage:
    """What a stage of ZeRO cuts, and what its step sends."""

    name: str
    cut: tuple[Category, ...]
    sends: str


_STAGES = (
    _Stage("DDP", (), "all-reduce\ngradients"),
    _Stage("ZeRO-1", PARTS[2:], "all-reduce gradients,\nall-gather parameters"),
    _Stage("ZeRO-2", PARTS[1:], "reduce-scatter gradients,\nall-gather parameters"),
    _Stage("ZeRO-3", PARTS, "all-gather parameters twice,\nreduce-scatter gradients"),
)


def draw_zero_stages(whole: Mapping[Category, int], ranks: int = 4, *, title: str = "") -> Picture:
    """Draw, for DDP and ZeRO's stages, what GPU 0 holds (filled) and others hold for it (dashed).

    For example `draw_zero_stages({"parameters": 14 * GIB, "gradients": 14 * GIB,
    "optimizer states": 84 * GIB}, ranks=4)`. What a layer gathers for a moment is not in it. Source
    of the stages: Rajbhandari et al., "ZeRO", 2020, section 5.

    Args:
        whole: bytes of the whole model's parameters, gradients and optimizer states.
        ranks: GPUs, 2 to 8.
        title: what is to be seen.

    Raises:
        ValueError: that many GPUs cannot be drawn.
    """
    check_drawable(ranks, "GPUs", 2, _MOST)
    title = title or _finding(whole, ranks)
    diagram = Diagram(len(_STAGES) * _ROW_IN + 0.75, title)
    largest = max(whole[part] for part in PARTS)
    widths = {part: 1.0 + 0.9 * whole[part] / largest for part in PARTS}
    y = diagram.height_in - 0.3
    x = 1.0
    for part in PARTS:
        diagram.write(x + widths[part] / 2, y, part, bold=True)
        x += widths[part] + 0.15
    diagram.write(x + 0.4, y, "GPU 0 holds", bold=True)
    diagram.write(x + 1.75, y, "a step sends", bold=True)
    for stage in _STAGES:
        y -= _ROW_IN
        diagram.write(0.25, y + 0.24, stage.name, ha="left", small=False, bold=True)
        x = 1.0
        for part in PARTS:
            pieces = ranks if part in stage.cut else 1
            for piece in range(pieces):
                size = size_label(whole[part] // pieces) if piece == 0 and pieces == 1 else ""
                width = widths[part] / pieces
                diagram.box(
                    x + piece * width,
                    y,
                    width - 0.03,
                    0.48,
                    size,
                    CATEGORY_LOOKS[part],
                    dashed=piece > 0,
                )
            if pieces > 1:
                diagram.write(x, y - 0.09, size_label(whole[part] // ranks), ha="left")
            x += widths[part] + 0.15
        held = size_label(_held(stage, whole, ranks))
        diagram.write(x + 0.4, y + 0.24, held, small=False, bold=True)
        diagram.write(x + 1.75, y + 0.24, stage.sends)
    diagram.write(0.25, 0.14, "filled: on GPU 0    dashed: on one of the others", ha="left")
    return diagram.finish(describe_zero_stages(whole, ranks, title=title))


def describe_zero_stages(whole: Mapping[Category, int], ranks: int = 4, *, title: str = "") -> str:
    """Say in words what `draw_zero_stages` draws."""
    rows = " ".join(
        f"{stage.name}: GPU 0 holds {short_size(_held(stage, whole, ranks))}; a step sends "
        f"{stage.sends}.".replace("\n", " ")
        for stage in _STAGES
    )
    return f"{title or _finding(whole, ranks)}. {ranks} GPUs. {rows}"


def _held(stage: _Stage, whole: Mapping[Category, int], ranks: int) -> int:
    return sum(whole[part] // (ranks if part in stage.cut else 1) for part in PARTS)


def _finding(whole: Mapping[Category, int], ranks: int) -> str:
    first, last = (size_label(_held(stage, whole, ranks)) for stage in (_STAGES[0], _STAGES[-1]))
    return f"Each stage cuts one thing more: from {first} on every GPU to {last}"
