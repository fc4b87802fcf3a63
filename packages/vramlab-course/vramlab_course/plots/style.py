"""How all pictures look: colours, hatches, units.

Colours are those of Okabe and Ito ("Color Universal Design", 2008), which people with any common
colour vision tell apart. Each is one category of `vramlab.measure`, in all pictures, and nothing
else: `looks_for(names)` knows it. What is no category is grey, and lines have colours of their own.
Hatches tell apart what has the same colour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Patch
from matplotlib.textpath import TextToPath

from vramlab.categories import Category
from vramlab.units import GIB, KIB, MIB, short_size
from vramlab.viz.colors import CATEGORY_COLORS

BLACK = "#000000"
GREY = "#BBBBBB"
PALE = "#F4F4F4"
INK = "#222222"
FAINT = "#5A5A5A"
"""Of words that may be passed over; dark enough to read on white."""
ALARM = "#882255"
"""Of a limit that should not be passed, and of a request that could not be served."""
LINE_COLORS = ("#332288", "#7A7A00", "#6B3F1D", FAINT, INK, "#999999", "#00505A")
"""Of lines and points, in the order in which they are drawn: no category has one of them."""

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


def paler(color: str, share: float) -> str:
    """Mix a colour with white.

    Args:
        color: as `#A6BFDB`.
        share: of white, from 0 to 1.
    """
    parts = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02X}" for part in parts)


@dataclass(frozen=True)
class Look:
    """How one meaning is drawn."""

    color: str
    hatch: str = ""
    text_color: str = INK
    """Colour of a label on top of it, chosen for contrast."""

    def paler(self, share: float) -> Look:
        """Return the same, mixed with so much white, from 0 to 1."""
        return replace(self, color=paler(self.color, share), text_color=INK)

    def patch(self, label: str) -> Patch:
        """Make a box of this look for a legend."""
        return Patch(facecolor=self.color, hatch=self.hatch, edgecolor=INK, lw=0.5, label=label)


_HATCHES = {Category.BUFFERS: ".."}  # workspaces have the same colour, and are met more often
_ON_DARK = (Category.PARAMETERS, Category.GRADIENTS)

CATEGORY_LOOKS: dict[Category, Look] = {
    category: Look(
        color, _HATCHES.get(category, ""), text_color="white" if category in _ON_DARK else INK
    )
    for category, color in CATEGORY_COLORS.items()
}
"""One look per category of `vramlab.measure`."""

TENSORS_LOOK = Look("#A6BFDB")
"""Allocated, whatever for."""
CACHED_LOOK = Look("white")
"""Reserved but not allocated."""
OUTSIDE_LOOK = Look(INK, text_color="white")
"""On the device, but outside of PyTorch's allocator, such as the CUDA context."""
GATHERED_LOOK = replace(CATEGORY_LOOKS[Category.PARAMETERS], hatch="//")
"""Parameters of other ranks or from the host, while a layer needs them."""

RANK_LOOKS = (
    Look(FAINT, text_color="white"),
    Look("#999999"),
    Look(GREY),
    Look("#DDDDDD"),
)
"""Of all that a GPU holds, by its number, where it does not matter what that is."""

FORWARD_LOOK = Look("#DDDDDD")
BACKWARD_LOOK = Look("#999999")
"""Of work, where it does not matter what it holds."""
PREDICTED_LOOK = Look("#DDDDDD", "//")
MEASURED_LOOK = Look(FAINT, text_color="white")
PUBLISHED_LOOK = Look("white", "..")

_MEANINGS: dict[str, Look] = {
    "buffers to receive into": CATEGORY_LOOKS[Category.WORKSPACES],
    **{str(category): look for category, look in CATEGORY_LOOKS.items()},
    "gradient ": CATEGORY_LOOKS[Category.GRADIENTS],
    "other micro-batches in flight": CATEGORY_LOOKS[Category.ACTIVATIONS],
    "this micro-batch": CATEGORY_LOOKS[Category.ACTIVATIONS],
    "for its own tokens": CATEGORY_LOOKS[Category.ACTIVATIONS],
    "for tokens that came": CATEGORY_LOOKS[Category.ACTIVATIONS],
    "weight": CATEGORY_LOOKS[Category.PARAMETERS],
    "bias": CATEGORY_LOOKS[Category.PARAMETERS],
    "states": CATEGORY_LOOKS[Category.OPTIMIZER_STATES],
    "gathered": GATHERED_LOOK,
    "fetched": GATHERED_LOOK,
    "casts": CATEGORY_LOOKS[Category.ACTIVATIONS].paler(0.5),
    "buckets": CATEGORY_LOOKS[Category.GRADIENTS],
    "outputs": CATEGORY_LOOKS[Category.ACTIVATIONS],
    "inside attention": CATEGORY_LOOKS[Category.ACTIVATIONS],
    "inside feed-forward": CATEGORY_LOOKS[Category.ACTIVATIONS],
    "norms, inputs, last masks": CATEGORY_LOOKS[Category.ACTIVATIONS],
    "loss": CATEGORY_LOOKS[Category.TEMPORARIES],
    **{f"GPU {number}": look for number, look in enumerate(RANK_LOOKS)},
    "default pool": Look(GREY),
    "used by the process": Look(GREY),
    "private pool": Look(FAINT, text_color="white"),
    "cache of keys": CATEGORY_LOOKS[Category.ACTIVATIONS],
    "cache": CACHED_LOOK,
    "tokens": CATEGORY_LOOKS[Category.ACTIVATIONS],
    "keys and values": CATEGORY_LOOKS[Category.ACTIVATIONS],
    "reserved": Look("white", "//"),
    "CUDA context": OUTSIDE_LOOK,
    "peak": TENSORS_LOOK,
    "forward": FORWARD_LOOK,
    "backward": BACKWARD_LOOK,
}
_MEANINGS_OF_WHOLE_NAMES: dict[str, Look] = {
    "input": CATEGORY_LOOKS[Category.INPUTS],
    "AdamW": CATEGORY_LOOKS[Category.OPTIMIZER_STATES],
    "copies": CATEGORY_LOOKS[Category.OPTIMIZER_STATES],
}
OTHER_LOOKS = (
    TENSORS_LOOK,
    Look("#DDDDDD"),
    Look(FAINT, text_color="white"),
    Look("#999999"),
    *(Look(color, hatch) for hatch in ("//", "..") for color in ("#DDDDDD", "#999999")),
    Look("white", "xx"),
)
"""For what is no category."""


def looks_for(names: Sequence[str]) -> dict[str, Look]:
    """Give every name its look: that of its meaning, else one that nothing else here has.

    A name has the meaning with whose words it begins, the longest: 'gradients of layer 2' are
    gradients, 'other micro-batches in flight' are activations. The second name of the same meaning
    has a paler colour, so that the two differ; or a hatch, where the paler colour would look
    like another meaning's.

    Raises:
        ValueError: there are more names than can be told apart.
    """
    found: dict[str, Look] = {}
    others = []
    for name in dict.fromkeys(names):
        words = max(filter(name.startswith, _MEANINGS), key=len, default="")
        meant = _MEANINGS_OF_WHOLE_NAMES.get(name) or _MEANINGS.get(words)
        if meant is None:
            others.append(name)
            continue
        used = [(look.color, look.hatch) for look in found.values()]
        alike = (look for look in _alike(meant) if (look.color, look.hatch) not in used)
        found[name] = next(alike, meant)
    taken = [(look.color, look.hatch) for look in found.values()]
    left = [look for look in OTHER_LOOKS if (look.color, look.hatch) not in taken]
    if len(others) > len(left):
        raise ValueError(f"{len(others)} parts in one picture; at most {len(left)} can be drawn")
    looks = found | dict(zip(others, left, strict=False))
    return {name: looks[name] for name in dict.fromkeys(names)}


_TINTS = (0.0, 0.6, 0.3, 0.8, -0.3, 0.45, 0.15, 0.7, -0.15, 0.52, 0.22, 0.88)
"""How far to white, or (below 0) to black: neighbours differ."""


def tints_of(category: Category | str, names: Sequence[str]) -> dict[str, Look]:
    """Give the parts of one category a tint of its colour each.

    Args:
        category: that all of them belong to.
        names: of the parts, in the order in which they are stacked.

    Raises:
        ValueError: there are more parts than can be told apart.
    """
    if len(names) > len(_TINTS):
        raise ValueError(f"{len(names)} parts of {category}; at most {len(_TINTS)} can be drawn")
    base = np.array(to_rgb(CATEGORY_LOOKS[Category(category)].color))
    looks = {}
    for name, tint in zip(names, _TINTS, strict=False):
        color = base + (1 - base) * tint if tint >= 0 else base * (1 + tint)
        red, green, blue = map(float, color)
        looks[name] = Look(to_hex((red, green, blue)), text_color=_readable_on(color))
    return looks


_LUMINANCE = np.array((0.2126, 0.7152, 0.0722))
"""Of red, green and blue; ITU-R BT.709."""


def _luminance(color: str | np.ndarray) -> float:
    """Return the relative luminance of a colour, as WCAG 2 defines it."""
    parts = np.array(to_rgb(color) if isinstance(color, str) else color)
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ _LUMINANCE)


def _readable_on(color: np.ndarray) -> str:
    """White or ink, whichever has more contrast."""
    there = _luminance(color) + 0.05
    return "white" if 1.05 / there > there / (_luminance(INK) + 0.05) else INK


def _alike(look: Look) -> Iterator[Look]:
    """Yield a look, and those of further names of its meaning."""
    yield look
    pale_blue_is_taken = look.color == CATEGORY_LOOKS[Category.PARAMETERS].color  # by states
    if not look.hatch and not pale_blue_is_taken:
        for share in (0.5, 0.75):
            yield look.paler(share)
    for hatch in ("//", "..", "xx"):
        yield replace(look, hatch=hatch)


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
        """Choose the unit in which an axis up to `largest_bytes` reads best."""
        for name, size_bytes in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
            if largest_bytes >= 2 * size_bytes:
                return cls(name, size_bytes)
        return cls("bytes", 1)

    def of(self, size_bytes: int) -> float:
        """Convert bytes to this unit."""
        return size_bytes / self.size_bytes


def size_label(size_bytes: int) -> str:
    """Write bytes for a label in a picture, with four digits: `304.1 MiB`, `39.72 GiB`.

    The words beside a picture, tables and results have all of them: `short_size` writes those.
    """
    number, _, unit = short_size(size_bytes).partition(" ")
    value = float(number.replace(",", ""))
    return f"{value:.4g} {unit}" if abs(value) < 1000 else f"{value:,.0f} {unit}"


def write_label(axes: Axes, x: float, y: float, text: str, look: Look, pad: float = 0.8) -> None:
    """Write a small label around a point of something that has this look, free of its hatch.

    Args:
        axes: where.
        x: the label's middle, in data units.
        y: the same, in data units.
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


@cache
def text_width_in(text: str, font_size: float = SMALL_FONT_SIZE) -> float:
    """Measure how wide the longest line is, in inches, with a little room around it."""
    font = FontProperties(family="DejaVu Sans", size=font_size)
    widths = [
        TextToPath().get_text_width_height_descent(line, font, ismath=False)[0]
        for line in text.split("\n")
        if line
    ]
    return max([0.0, *widths]) / 72 * _AROUND


_AROUND = 1.05


def fits(axes: Axes, text: str, width: float, axes_width_in: float) -> bool:
    """Return whether a label fits into a width given in data units of the x axis."""
    left, right = axes.get_xlim()
    return text_width_in(text) < width / (right - left) * axes_width_in


def fits_in(text: str, width_in: float) -> str:
    """Return those lines that fit into a width."""
    lines = [line for line in text.splitlines() if text_width_in(line) < width_in]
    return "\n".join(lines)
