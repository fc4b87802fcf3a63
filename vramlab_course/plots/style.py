"""How all pictures look: colours, hatches, units.

Colours are those of Okabe and Ito ("Color Universal Design", 2008), which people with any common
colour vision tell apart. Each meaning also has a hatch or a label of its own, so that a picture
printed in grey says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from vramlab.measure.categories import Category
from vramlab.units import GIB, KIB, MIB

BLACK = "#000000"
ORANGE = "#E69F00"
SKY_BLUE = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#BBBBBB"
PALE = "#F4F4F4"
INK = "#222222"
FAINT = "#5A5A5A"
"""Of words that may be passed over; dark enough to read on white."""

FONT_SIZE = 9.0
"""Points; 12.5 pixels where pictures are shown at 100 pixels per inch."""
TITLE_FONT_SIZE = FONT_SIZE + 2
"""Of a picture; axes in it have smaller ones."""
SMALL_FONT_SIZE = 8.0
"""For labels inside bars."""

_SETTINGS = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so pictures are the same everywhere
    "font.size": FONT_SIZE,
    "axes.titlesize": FONT_SIZE + 1,
    "axes.titlelocation": "left",
    "axes.labelsize": FONT_SIZE,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@dataclass(frozen=True)
class Look:
    """How one meaning is drawn."""

    color: str
    hatch: str = ""
    text_color: str = INK
    """Colour of a label on top of it, chosen for contrast."""

    def patch(self, label: str) -> Patch:
        """A box of this look for a legend."""
        return Patch(facecolor=self.color, hatch=self.hatch, edgecolor=INK, lw=0.5, label=label)


CATEGORY_LOOKS: dict[Category, Look] = {
    Category.PARAMETERS: Look(BLUE, text_color="white"),
    Category.BUFFERS: Look(PURPLE, ".."),
    Category.OPTIMIZER_STATES: Look(SKY_BLUE, "//"),
    Category.GRADIENTS: Look(GREEN, "\\\\", text_color="white"),
    Category.INPUTS: Look(YELLOW),
    Category.WORKSPACES: Look(PURPLE, "xx"),
    Category.OTHER: Look(GREY, ".."),
    Category.ACTIVATIONS: Look(ORANGE),
    Category.TEMPORARIES: Look(VERMILLION, "||"),
}
"""One look per category of `vramlab.measure`."""

CACHED_LOOK = Look("white", "..")
"""Reserved but not allocated."""
OUTSIDE_LOOK = Look(INK, text_color="white")
"""On the device, but outside of PyTorch's allocator, such as the CUDA context."""


@contextmanager
def house_style() -> Iterator[None]:
    """Use the settings of all our pictures for what is drawn meanwhile."""
    with mpl.rc_context(_SETTINGS):  # type: ignore[arg-type]
        yield


@dataclass(frozen=True)
class MemoryUnit:
    """A unit of memory for an axis."""

    name: str
    size_bytes: int

    @classmethod
    def for_axis(cls, largest_bytes: int) -> MemoryUnit:
        """The unit in which an axis up to `largest_bytes` reads best."""
        for name, size_bytes in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
            if largest_bytes >= 2 * size_bytes:
                return cls(name, size_bytes)
        return cls("bytes", 1)

    def of(self, size_bytes: int) -> float:
        """Bytes in this unit."""
        return size_bytes / self.size_bytes


def write_label(axes: Axes, x: float, y: float, text: str, look: Look, pad: float = 0.8) -> None:
    """Write a small label around a point of something that has this look, free of its hatch.

    Args:
        axes: where.
        x: the label's middle, in data units.
        y: likewise.
        text: what to write.
        look: of what is below.
        pad: how far around the text the hatch is left out, in points.
    """
    axes.text(
        x,
        y,
        text,
        ha="center",
        va="center",
        color=look.text_color,
        fontsize=SMALL_FONT_SIZE,
        bbox={"facecolor": look.color, "edgecolor": "none", "pad": pad},
    )


def text_width_in(text: str, font_size: float = SMALL_FONT_SIZE) -> float:
    """About how wide a line of text is, in inches (DejaVu Sans is 0.6 em wide on average)."""
    return len(text) * 0.6 * font_size / 72


def fits(axes: Axes, text: str, width: float, axes_width_in: float) -> bool:
    """Whether a label fits into a width given in data units of the x axis."""
    left, right = axes.get_xlim()
    return text_width_in(text) < width / (right - left) * axes_width_in
