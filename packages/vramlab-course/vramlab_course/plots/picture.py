"""A matplotlib figure that says in words what it shows.

In a notebook it is embedded as an `<img>` with real alternative text, which screen readers read and
which stays in the HTML page that nbconvert makes. It belongs to no pyplot window: showing it is all
it does, and forgetting it frees it.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from vramlab_course.plots.readers_language import in_readers_language, is_told
from vramlab_course.plots.style import Look
from vramlab_course.translations.language import language_here
from vramlab_course.translations.speech import title_of

WIDTH_IN = 9.0
"""Width of every picture in inches; at `SHOWN_DPI` that is 900 pixels, a notebook's width."""
SHOWN_DPI = 100
"""Pixels per inch at which a picture is shown."""
PIXELS_PER_SHOWN_PIXEL = 2
"""Pictures are rendered finer than they are shown, to be sharp on dense screens."""
NARROWEST_PX = 600
"""Where there is less room, a picture is scrolled: smaller, it would be unreadable."""


class Picture(Figure):
    """A figure with alternative text; leave it as a cell's last line to show it."""

    alt: str = ""
    """What the picture shows, in words and numbers."""

    def explain(self, looks: Mapping[str, Look]) -> None:
        """Say below the axes what looks mean, by name, on one line."""
        handles = [look.patch(name) for name, look in looks.items()]
        self.legend(handles=handles, loc="outside lower left", ncols=len(handles))

    def explain_in_columns(self, handles: Sequence[Artist], most: int) -> None:
        """Say below the axes what these mean, in as many columns as there is room for.

        Args:
            handles: one for each entry, with its label.
            most: columns.
        """
        if not handles:
            return
        for columns in range(most, 0, -1):
            legend = self.legend(handles=handles, loc="outside lower left", ncols=columns)
            if columns == 1 or legend.get_window_extent().width <= self.bbox.width:
                return
            legend.remove()

    def to_png(self) -> bytes:
        """Draw it as a PNG file, with its words in the reader's language."""
        file = io.BytesIO()
        self._group_thousands()
        with in_readers_language(self):
            self.savefig(file, format="png", dpi=SHOWN_DPI * PIXELS_PER_SHOWN_PIXEL)
        return file.getvalue()

    def _group_thousands(self) -> None:
        """Write numbers at the axes as everywhere else in the course: 1,500, not 1500."""
        for axes in self.axes:
            for axis in (axes.xaxis, axes.yaxis):
                if type(axis.get_major_formatter()) is ScalarFormatter:
                    axis.set_major_formatter(_Thousands())

    def to_html(self) -> str:
        """Show it as an `<img>` element with its alternative text."""
        data = base64.b64encode(self.to_png()).decode("ascii")
        width_px = round(self.get_figwidth() * SHOWN_DPI)
        return (
            f'<img src="data:image/png;base64,{data}" alt="{escape(self.alt)}" '
            f'width="{width_px}" '
            f'style="min-width: {NARROWEST_PX}px; max-width: 100%; height: auto;">'
        )

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": title_html(self.alt) + self.to_html(), "text/plain": self.alt}


class _Thousands(ScalarFormatter):
    """Writes a tick's number with commas between thousands."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:,.0f}" if abs(x) >= 1000 else super().__call__(x, pos)


def title_html(alt: str) -> str:
    """Write a picture's title in the learner's language, if the picture itself cannot say it."""
    title = "" if is_told(language_here()) else title_of(alt)
    return f"<p><strong>{escape(title)}</strong></p>" if title else ""


def new_picture(height_in: float) -> Picture:
    """Begin a picture of the usual width, whose parts make room for each other."""
    return Picture(figsize=(WIDTH_IN, height_in), dpi=SHOWN_DPI, layout="constrained")
