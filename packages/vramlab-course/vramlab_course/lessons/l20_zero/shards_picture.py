"""Draw who holds which parameters when: a column for each GPU, a row for each moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from vramlab.measure import Category
from vramlab_course.plots import style
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import CATEGORY_LOOKS, Look

Held = Mapping[str, Sequence[str]]
"""For each moment, in order, the names of the parameters that a GPU holds."""

_AT_HOME = CATEGORY_LOOKS[Category.PARAMETERS]
_ROW_IN = 0.62


def draw_shards(held: Sequence[Held], title: str = "Who holds what") -> Picture:
    """Draw which parameters each GPU holds at each moment.

    What is filled is in the shard of the GPU that keeps it at the first moment. What is hatched has
    been gathered.

    Args:
        held: for each GPU, what it holds; a parameter is named by its layer, which is all but the
            last character, and its number in the layer. All GPUs have the same moments.
        title: the picture's title.

    Raises:
        ValueError: no GPU holds anything, or a parameter has no owner at the first moment.
    """
    owners = _owners(held)
    moments = list(held[0])
    layers = sorted({name[:-1] for name in owners})
    columns = max(int(name[-1]) for name in owners) + 1
    with style.house_style():
        picture = new_picture(0.9 + _ROW_IN * len(moments))
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        width = len(layers) * (columns + 0.4)
        for gpu, own in enumerate(held):
            left = gpu * (width + 1.2)
            axes.text(left, -0.75, f"GPU {gpu}", fontweight="bold", va="bottom")
            for row, moment in enumerate(moments):
                for name in sorted(owners):
                    x = left + layers.index(name[:-1]) * (columns + 0.4) + int(name[-1])
                    _draw_cell(axes, x, row, name, owners[name], gpu, name in own[moment])
        axes.set_xlim(-0.3, len(held) * (width + 1.2) - 1.2)
        axes.set_ylim(len(moments) - 0.4, -1.2)
        axes.set_yticks(range(len(moments)), moments)
        axes.tick_params(axis="y", length=0)
        axes.set_xticks([])
        for spine in axes.spines.values():
            spine.set_visible(False)
        picture.explain({"own shard": _AT_HOME, "gathered": style.GATHERED_LOOK})
    picture.alt = describe_shards(held, title)
    return picture


def describe_shards(held: Sequence[Held], title: str = "Who holds what") -> str:
    """Describe what `draw_shards` draws."""
    _owners(held)
    sentences = [
        f"{moment}: "
        + "; ".join(f"GPU {gpu} has {', '.join(own[moment])}" for gpu, own in enumerate(held))
        + "."
        for moment in held[0]
    ]
    return " ".join([f"{title}.", *sentences])


def _owners(held: Sequence[Held]) -> dict[str, int]:
    """Who keeps each parameter at the first moment."""
    if not held or not held[0]:
        raise ValueError("no GPU holds anything: give at least one moment for each GPU")
    first = next(iter(held[0]))
    owners = {name: gpu for gpu, own in enumerate(held) for name in own[first]}
    everything = {name for own in held for names in own.values() for name in names}
    if lost := everything - set(owners):
        raise ValueError(f"no GPU keeps {', '.join(sorted(lost))} at the first moment")
    return owners


def _draw_cell(
    axes: Axes, x: float, row: int, name: str, owner: int, gpu: int, is_there: bool
) -> None:
    look = Look("white", text_color=style.GREY)
    if is_there:
        look = _AT_HOME if owner == gpu else style.GATHERED_LOOK
    axes.add_patch(
        Rectangle(
            (x, row - 0.38),
            0.92,
            0.76,
            facecolor=look.color,
            hatch=look.hatch,
            edgecolor=style.INK if is_there else style.GREY,
            linewidth=0.5,
        )
    )
    if is_there:
        style.write_label(axes, x + 0.46, row, name, look)
