"""Who keeps and who sends what, when a model is trained with DDP or with a stage of ZeRO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.lessons.l20_zero.formulas import Stage, paper_moved
from vramlab_course.plots.diagram import Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, fits_in, size_label

PARTS = (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATES)
_MOST = 8
_ROW_IN = 0.72
_BARS_IN = 5.2  # for all bytes of the whole model
_GAP_IN = 0.12
_LEFT_IN = 0.9
_EDGES_IN = 0.06


@dataclass(frozen=True)
class _Stage:
    """What a stage of ZeRO divides, and what its step sends by the paper's count."""

    number: Stage
    name: str
    cut: tuple[Category, ...]
    sends: str


_STAGES = (
    _Stage(0, "DDP", (), "all-reduce\nof gradients"),
    _Stage(1, "ZeRO-1", PARTS[2:], "reduce-scatter,\nall-gather"),
    _Stage(2, "ZeRO-2", PARTS[1:], "reduce-scatter,\nall-gather"),
    _Stage(3, "ZeRO-3", PARTS, "2 all-gathers,\nreduce-scatter"),
)


def draw_zero_stages(whole: Mapping[Category, int], ranks: int = 4, *, title: str = "") -> Picture:
    """Draw, for DDP and ZeRO's stages, what GPU 0 keeps (filled) and what others keep (dashed).

    For example `draw_zero_stages({"parameters": 14 * GIB, "gradients": 14 * GIB,
    "optimizer states": 84 * GIB}, ranks=4)`. Widths are in proportion to bytes. What a layer
    gathers for a moment is not in it. Source of the stages and of what they send: Rajbhandari et
    al., "ZeRO", 2020, sections 5 and 7; `formulas.sent_bytes` has what PyTorch sends.

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
    scale = _BARS_IN / sum(whole[part] for part in PARTS)
    y = diagram.height_in - 0.3
    x = _LEFT_IN
    for part in PARTS:
        width = whole[part] * scale
        words = {Category.OPTIMIZER_STATES: "optimizer states"}.get(part, str(part))
        diagram.write(x + width / 2, y, words, bold=True)
        x += width + _GAP_IN
    diagram.write(x + 0.4, y, "GPU 0 keeps", bold=True)
    diagram.write(x + 1.45, y, "a step sends", bold=True)
    for stage in _STAGES:
        y -= _ROW_IN
        diagram.write(0.15, y + 0.24, stage.name, ha="left", small=False, bold=True)
        x = _LEFT_IN
        for part in PARTS:
            width = whole[part] * scale
            own = width / (ranks if part in stage.cut else 1)
            if own < width:
                others = fits_in(f"{ranks - 1} other GPUs", width - own - _EDGES_IN)
                diagram.box(x + own, y, width - own, 0.48, others, dashed=True)
            diagram.area(x, y, own, 0.48, CATEGORY_LOOKS[part], edged=True)
            label = size_label(whole[part] // (ranks if part in stage.cut else 1))
            if fits_in(label, own - _EDGES_IN):
                look = CATEGORY_LOOKS[part]
                diagram.write(x + own / 2, y + 0.24, label, color=look.text_color)
            else:
                diagram.write(x, y - 0.09, label, ha="left")
            x += width + _GAP_IN
        held = size_label(_held(stage, whole, ranks))
        diagram.write(x + 0.4, y + 0.24, held, small=False, bold=True)
        diagram.write(x + 1.45, y + 0.24, f"{paper_moved(stage.number)} M: {stage.sends}")
    diagram.write(
        0.15,
        0.14,
        "filled: on GPU 0    dashed: on the others    M: bytes of all parameters; sent by the "
        "paper's count",
        ha="left",
    )
    return diagram.finish(describe_zero_stages(whole, ranks, title=title))


def describe_zero_stages(whole: Mapping[Category, int], ranks: int = 4, *, title: str = "") -> str:
    """Describe what `draw_zero_stages` draws."""
    rows = " ".join(
        f"{stage.name}: GPU 0 keeps {short_size(_held(stage, whole, ranks))}; a step sends "
        f"{paper_moved(stage.number)} M: {stage.sends}.".replace("\n", " ")
        for stage in _STAGES
    )
    return (
        f"{title or _finding(whole, ranks)}. {ranks} GPUs; M is the bytes of all parameters, sent "
        f"by the paper's count. {rows}"
    )


def _held(stage: _Stage, whole: Mapping[Category, int], ranks: int) -> int:
    return sum(whole[part] // (ranks if part in stage.cut else 1) for part in PARTS)


def _finding(whole: Mapping[Category, int], ranks: int) -> str:
    first, second, last = (
        size_label(_held(stage, whole, ranks)) for stage in (_STAGES[0], _STAGES[1], _STAGES[-1])
    )
    return f"Stage 1 saves most: {first} on each of {ranks} GPUs, then {second}; at stage 3 {last}"
