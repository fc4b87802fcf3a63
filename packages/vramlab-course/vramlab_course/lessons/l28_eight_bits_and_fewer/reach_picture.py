"""Which powers of two a tensor's numbers have, and which of them a format reaches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from vramlab_course.formulas.float_formats import FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FloatFormat
from vramlab_course.plots import style
from vramlab_course.plots.picture import Picture, new_picture

FORMATS = (FLOAT16, FLOAT8_E5M2, FLOAT8_E4M3)

Binades = Mapping[int, int]
"""How many numbers there are in each power of two: 3 is in 2**1."""

_BAR = 0.55


def draw_reach(
    tensors: Mapping[str, Binades],
    *,
    formats: Sequence[FloatFormat] = FORMATS,
    title: str = "",
) -> Picture:
    """Draw how many numbers lie in each power of two, above the reach of formats.

    Args:
        tensors: counts by the power of two, by the tensor's name; one below the other.
        formats: whose reach is drawn, from the smallest number to the largest.
        title: what is to be seen.

    Raises:
        ValueError: a tensor has no numbers but zeros.
    """
    if empty := [name for name, counts in tensors.items() if not sum(counts.values())]:
        raise ValueError(f"no number but zeros in {', '.join(empty)}: there is nothing to draw")
    title = title or _finding(tensors, formats)
    lowest = min(min(counts) for counts in tensors.values())
    lowest = min(lowest, *(_powers(form)[0] for form in formats))
    highest = max(max(counts) for counts in tensors.values())
    highest = max(highest, *(_powers(form)[1] for form in formats))
    with style.house_style():
        picture = new_picture(0.9 + 1.75 * len(tensors))
        all_axes = picture.subplots(len(tensors), 1, sharex=True, squeeze=False)[:, 0]
        picture.suptitle(title, x=0.02, ha="left", fontsize=style.TITLE_FONT_SIZE)
        for axes, (name, counts) in zip(all_axes, tensors.items(), strict=True):
            _draw_tensor(axes, name, counts, formats)
            axes.set_xlim(lowest - 1, highest + 12)
        ticks = range(math.ceil(lowest / 8) * 8, highest + 2, 8)
        all_axes[-1].set_xticks(list(ticks), [f"2$^{{{power}}}$" for power in ticks])
        all_axes[-1].set_xlabel("size of a number")
    picture.alt = describe_reach(tensors, formats=formats, title=title)
    return picture


def describe_reach(
    tensors: Mapping[str, Binades],
    *,
    formats: Sequence[FloatFormat] = FORMATS,
    title: str = "",
) -> str:
    """Describe what `draw_reach` draws."""
    parts = [
        f"{name}: from 2^{min(counts)} to 2^{max(counts)}; "
        + ", ".join(f"{form.name}: {_lost(counts, form)}" for form in formats)
        for name, counts in tensors.items()
    ]
    return f"{title or _finding(tensors, formats)}. {'. '.join(parts)}."


def _draw_tensor(axes: Axes, name: str, counts: Binades, formats: Sequence[FloatFormat]) -> None:
    most = max(counts.values())
    axes.bar(
        [power + 0.5 for power in counts],
        [count / most * 2 for count in counts.values()],
        width=0.9,
        color=style.TENSORS_LOOK.color,
        edgecolor=style.INK,
        linewidth=0.4,
    )
    for number, form in enumerate(formats):
        low, high = _powers(form)
        y = -0.8 * (number + 1)
        axes.barh(
            y, high + 1 - low, left=low, height=_BAR, color=style.GREY, edgecolor=style.INK, lw=0.5
        )
        axes.text(
            (low + high + 1) / 2,
            y,
            form.name,
            ha="center",
            va="center",
            fontsize=style.SMALL_FONT_SIZE,
        )
        words = _lost(counts, form)
        axes.text(high + 1.6, y, words, va="center", fontsize=style.SMALL_FONT_SIZE)
    axes.set_ylim(-0.8 * len(formats) - 0.5, 2.2)
    axes.set_title(name)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _powers(form: FloatFormat) -> tuple[int, int]:
    """Return the powers of two of a format's smallest and largest number."""
    return round(math.log2(form.smallest)), math.floor(math.log2(form.largest))


def _shares(counts: Binades, form: FloatFormat) -> tuple[float, float]:
    """Return what share of the numbers, but zeros, is below a format's reach, and above."""
    low, high = _powers(form)
    everything = sum(counts.values())
    below = sum(count for power, count in counts.items() if power < low)
    above = sum(count for power, count in counts.items() if power > high)
    return below / everything, above / everything


def _lost(counts: Binades, form: FloatFormat) -> str:
    below, above = _shares(counts, form)
    words = [f"{_percent(below)} too small"] if below else []
    words += [f"{_percent(above)} too large"] if above else []
    return ", ".join(words) or "all within"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "under 1%"


def _finding(tensors: Mapping[str, Binades], formats: Sequence[FloatFormat]) -> str:
    """Name what the last format loses of the first tensor and of the last."""
    first, *_, last = (*tensors.items(), *tensors.items())
    form = formats[-1]
    if len(tensors) == 1:
        return f"{first[0]}: {_lost(first[1], form)} for {form.name}"
    return f"{form.name}: {first[0]}, {_lost(first[1], form)}; {last[0]}, {_lost(last[1], form)}"
