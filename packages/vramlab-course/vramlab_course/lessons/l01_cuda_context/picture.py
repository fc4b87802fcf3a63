"""Who has a GPU's memory at one or several moments, as stacked bars."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.artist import Artist

from vramlab.measure import DeviceReading
from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.bars import BarPart, draw_bar, draw_capacity, name_rows
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import Look, MemoryUnit, size_label

_LOOKS = {
    "driver": Look(style.GREY),
    "context, other processes": style.OUTSIDE_LOOK,
    "tensors": style.TENSORS_LOOK,
    "cached": style.CACHED_LOOK,
}
_ROW_IN = 0.42
_PLOT_WIDTH_IN = 6.6  # what is left of a picture's width beside the names of the moments


def draw_device(
    readings: Mapping[str, DeviceReading],
    *,
    title: str = "Who has the GPU's memory",
    capacity_bytes: int | None = None,
) -> Picture:
    """Draw one bar for each moment; what is free is left white, and mostly cut off.

    A part's name stands on it where there is room first, else below all bars.

    Args:
        readings: from `vramlab.measure.read_device`, by the name of the moment.
        title: the picture's title.
        capacity_bytes: the GPU's memory, drawn as a line if given.
    """
    taken_bytes = [reading.driver_bytes + reading.used_bytes for reading in readings.values()]
    longest_bytes = max([*taken_bytes, capacity_bytes or 0])
    unit = MemoryUnit.for_axis(longest_bytes)
    with style.house_style():
        picture = new_picture(0.95 + _ROW_IN * len(readings))
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        axes.set_xlim(0, unit.of(longest_bytes) * 1.02 or 1)
        unnamed = set(_LOOKS)
        for row, reading in enumerate(readings.values()):
            stretches = (
                BarPart(name, size, _LOOKS[name], _labels(name, size, name in unnamed))
                for name, size in _parts(reading)
            )
            unnamed -= draw_bar(axes, row, stretches, unit, _PLOT_WIDTH_IN, height=0.7)
        there = {name for reading in readings.values() for name, size in _parts(reading) if size}
        handles: list[Artist] = [
            look.patch(name) for name, look in _LOOKS.items() if name in unnamed & there
        ]
        handles += draw_capacity(axes, capacity_bytes, unit)
        axes.set_xlabel(unit.name)
        name_rows(axes, list(readings))
        picture.set_figheight(picture.get_figheight() + 0.2 * -(-len(handles) // 3))
        picture.explain_in_columns(handles, 3)
    picture.alt = describe_device(readings, title=title)
    return picture


def _labels(name: str, size_bytes: int, is_named: bool) -> tuple[str, ...]:
    """Return what may stand on a part: the first time, its name as well."""
    size = size_label(size_bytes)
    return (f"{name} {size}", f"{name}\n{size}", size) if is_named else (size,)


def describe_device(
    readings: Mapping[str, DeviceReading], *, title: str = "Who has the GPU's memory"
) -> str:
    """Describe what `draw_device` draws."""
    sentences = [f"{title}."]
    for moment, reading in readings.items():
        listed = ", ".join(
            f"{name} {short_size(size_bytes)}" for name, size_bytes in _parts(reading) if size_bytes
        )
        sentences.append(f"{moment}: {listed or 'nothing in use'}.")
    return " ".join(sentences)


def _parts(reading: DeviceReading) -> list[tuple[str, int]]:
    sizes = (
        reading.driver_bytes,
        reading.outside_bytes,
        reading.allocated_bytes,
        reading.cached_bytes,
    )
    return list(zip(_LOOKS, sizes, strict=True))
