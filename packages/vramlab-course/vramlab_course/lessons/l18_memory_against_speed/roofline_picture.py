"""The roofline: what a GPU reaches at best, over the FLOPs that work has for each byte."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from vramlab.catalogue import GPUModel
from vramlab.cuda_rules.durations import (
    Arithmetic,
    peak_flops_per_s,
    ridge_flops_per_byte,
    roof_flops_per_s,
)
from vramlab_course.plots import style
from vramlab_course.plots.picture import Picture, new_picture

_ROOFS = (
    (style.LINE_COLORS[0], "solid"),
    (style.LINE_COLORS[1], "dashed"),
    (style.LINE_COLORS[2], "dashdot"),
)
_MARKERS = "os^DvPX*<>"


def draw_roofline(
    gpu: GPUModel,
    work: Mapping[str, float],
    arithmetics: tuple[Arithmetic, ...] = ("float32",),
    *,
    title: str | None = None,
) -> Picture:
    """Draw a GPU's roofs, and where work of so many FLOPs per byte comes to stand under them.

    Args:
        gpu: of the catalogue.
        work: FLOPs per byte by name; each is drawn at the height it reaches at best under the first
            roof.
        arithmetics: formats that have a roof of their own, at most three.
        title: the picture's title.

    Raises:
        ValueError: the GPU has no units for a format, or there are more roofs than can be told
            apart.
    """
    if len(arithmetics) > len(_ROOFS):
        raise ValueError(f"{len(arithmetics)} roofs in one picture; at most {len(_ROOFS)}")
    title = title or f"The roofs of one {gpu.name}"
    ridges = [ridge_flops_per_byte(gpu, arithmetic) for arithmetic in arithmetics]
    left = min([0.1, *work.values()]) / 2
    right = max([*ridges, *work.values()]) * 4
    with style.house_style():
        picture = new_picture(4.6)
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        for arithmetic, ridge, (color, line) in zip(arithmetics, ridges, _ROOFS, strict=False):
            xs = [left, ridge, right]
            axes.plot(
                xs,
                [roof_flops_per_s(x, gpu, arithmetic) / 1e12 for x in xs],
                color=color,
                linestyle=line,
                linewidth=2,
            )
            _name_roof(axes, right, peak_flops_per_s(gpu, arithmetic) / 1e12, arithmetic, ridge)
        for number, (name, intensity) in enumerate(work.items()):
            axes.plot(
                intensity,
                roof_flops_per_s(intensity, gpu, arithmetics[0]) / 1e12,
                marker=_MARKERS[number % len(_MARKERS)],
                markersize=8,
                color=style.GREY,
                markeredgecolor=style.INK,
                linestyle="none",
                zorder=4,
                label="_" + name,  # its name stands at the point
            )
        _name_points(axes, gpu, work, arithmetics[0])
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(left, right)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
        axes.set_xlabel("FLOPs for each byte read or written")
        axes.set_ylabel("TFLOP/s at best")
        axes.grid(True, color=style.GREY, linewidth=0.4)
    picture.alt = describe_roofline(gpu, work, arithmetics, title=title)
    return picture


def _name_roof(axes: Axes, right: float, height: float, arithmetic: str, ridge: float) -> None:
    axes.annotate(
        f"{arithmetic}: {height:,.4g} TFLOP/s, from {ridge:,.3g} FLOPs per byte",
        (right, height),
        xytext=(-2, 8),
        textcoords="offset points",
        ha="right",
        fontsize=style.SMALL_FONT_SIZE,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},  # over steeper roofs
    )


def _name_points(
    axes: Axes, gpu: GPUModel, work: Mapping[str, float], arithmetic: Arithmetic
) -> None:
    """Write names below the roof, each where it is flat a line lower; of one point, on one line."""
    names: dict[str, list[str]] = {}
    for name, intensity in work.items():
        names.setdefault(f"{intensity:,.3g}", []).append(name)
    ridge = ridge_flops_per_byte(gpu, arithmetic)
    flat = 0
    for same in names.values():
        intensity = work[same[0]]
        slopes = intensity < ridge
        flat += not slopes
        axes.annotate(
            ", ".join(same),
            (intensity, roof_flops_per_s(intensity, gpu, arithmetic) / 1e12),
            xytext=(9, -10) if slopes else (0, -13 * flat - 3),
            textcoords="offset points",
            ha="left" if slopes else "center",
            va="center",
            fontsize=style.SMALL_FONT_SIZE,
        )


def describe_roofline(
    gpu: GPUModel,
    work: Mapping[str, float],
    arithmetics: tuple[Arithmetic, ...] = ("float32",),
    *,
    title: str | None = None,
) -> str:
    """Describe what `draw_roofline` draws."""
    roofs = "; ".join(
        f"{arithmetic}: memory-bound below {ridge_flops_per_byte(gpu, arithmetic):,.3g} FLOPs per "
        f"byte, {peak_flops_per_s(gpu, arithmetic) / 1e12:,.4g} TFLOP/s above"
        for arithmetic in arithmetics
    )
    ridge = ridge_flops_per_byte(gpu, arithmetics[0])
    points = ", ".join(
        f"{name} has {intensity:,.3g} and is {'memory' if intensity < ridge else 'compute'}-bound"
        for name, intensity in work.items()
    )
    return f"{title or f'The roofs of one {gpu.name}'}. {roofs}. In {arithmetics[0]}: {points}."
