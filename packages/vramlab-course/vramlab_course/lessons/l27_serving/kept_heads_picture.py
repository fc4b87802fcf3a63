"""What attention keeps of a token: keys and values of all heads, of groups, or one latent."""

from __future__ import annotations

from dataclasses import dataclass

from vramlab.measure import Category
from vramlab_course.plots import style
from vramlab_course.plots.diagram import Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, Look

_QUERY, _KEPT = Look(style.PALE), CATEGORY_LOOKS[Category.ACTIVATIONS]
_LATENT = _KEPT.paler(0.5)
_WIDTH_IN, _GAP_IN = 1.8, 0.03
_MOST_HEADS = 8


@dataclass(frozen=True)
class KeptHeads:
    """One kind of attention in the picture."""

    name: str
    """Such as `grouped (GQA)`."""
    kv_heads: int
    """Of keys and values; 0 where a latent is kept for all."""
    numbers: int
    """That a layer keeps of each token."""


def draw_kept_heads(
    heads: int, head_size: int, groups: int, latent: int, rotary: int, *, title: str = ""
) -> Picture:
    """Draw four kinds of attention: query heads above, below them the KV cache of a token.

    One scale for all four: a box is as wide as it has numbers.

    Args:
        heads: query heads, a multiple of `groups`; few enough to draw.
        head_size: numbers of a head's key, or value.
        groups: heads of keys and values that grouped attention has.
        latent: numbers of the vector that multi-head latent attention keeps.
        rotary: numbers of the key that its heads share.
        title: what is to be seen.

    Raises:
        ValueError: so many heads cannot be drawn, or groups do not share them evenly.
    """
    check_drawable(heads, "heads", 2, _MOST_HEADS)
    if heads % groups:
        raise ValueError(f"{heads} query heads cannot share {groups} key-value heads evenly")
    kinds = _kinds(heads, head_size, groups, latent, rotary)
    diagram = Diagram(2.2, title or _finding(kinds))
    step = _WIDTH_IN / heads
    inch_each = box_width_in(heads, head_size) / (2 * head_size)
    for column, kind in enumerate(kinds):
        left = 0.3 + column * 2.2
        middle = left + _WIDTH_IN / 2
        diagram.write(middle, 2.05, kind.name, small=False, bold=True)
        tops = _draw_kept(diagram, kind, left, (latent, rotary), inch_each)
        for head in range(heads):
            box = diagram.box(left + head * step, 1.5, step - 0.05, 0.3, "Q", _QUERY)
            diagram.line(box.bottom, tops[head * len(tops) // heads], 0.8)
        parts = "" if kind.kv_heads else f" = {latent:,} + {rotary:,}"
        diagram.write(middle, 0.45, f"{kind.numbers:,}{parts} numbers", bold=True)
    diagram.write(
        4.5,
        0.12,
        "of each token, in each layer, are cached: widths to scale. MLA: a latent, and a thin "
        "rotary key for all heads",
    )
    return diagram.finish(
        describe_kept_heads(heads, head_size, groups, latent, rotary, title=title)
    )


def describe_kept_heads(
    heads: int, head_size: int, groups: int, latent: int, rotary: int, *, title: str = ""
) -> str:
    """Describe what `draw_kept_heads` draws."""
    kinds = _kinds(heads, head_size, groups, latent, rotary)
    listed = "; ".join(
        f"{kind.name}: "
        + (f"{kind.kv_heads} heads of keys and values" if kind.kv_heads else "one latent for all")
        + f", {kind.numbers:,} numbers"
        for kind in kinds
    )
    return (
        f"{title or _finding(kinds)}. {heads} query heads of {head_size}. Kept of each token in "
        f"each layer: {listed}."
    )


def box_width_in(heads: int, head_size: int) -> float:
    """Return how wide one head's keys and values are drawn, in inches.

    Args:
        heads: query heads; as many boxes stand side by side for MHA.
        head_size: numbers of a head's key, or value.

    Raises:
        ValueError: a head without numbers has no width.
    """
    if head_size < 1:
        raise ValueError(f"a head of {head_size} numbers cannot be drawn; it needs at least 1")
    return (_WIDTH_IN - (heads - 1) * _GAP_IN) / heads


def _draw_kept(
    diagram: Diagram, kind: KeptHeads, left: float, latent: tuple[int, int], inch_each: float
) -> list[tuple[float, float]]:
    """Draw what is kept; give the points that query heads are joined to.

    Args:
        latent: numbers of the latent, and of the rotary key beside it.
        inch_each: width of one number.
    """
    if not kind.kv_heads:
        widths = [numbers * inch_each for numbers in latent]
        x = left + (_WIDTH_IN - sum(widths) - _GAP_IN) / 2
        box = diagram.box(x, 0.7, widths[0], 0.4, style.fits_in("latent", widths[0]), _LATENT)
        diagram.area(x + widths[0] + _GAP_IN, 0.7, widths[1], 0.4, _KEPT, edged=True)
        return [box.top]
    step = _WIDTH_IN / kind.kv_heads
    width = inch_each * kind.numbers / kind.kv_heads
    return [
        diagram.box(left + number * step + (step - width) / 2, 0.7, width, 0.4, "K\nV", _KEPT).top
        for number in range(kind.kv_heads)
    ]


def _kinds(
    heads: int, head_size: int, groups: int, latent: int, rotary: int
) -> tuple[KeptHeads, ...]:
    return (
        KeptHeads("all heads (MHA)", heads, 2 * heads * head_size),
        KeptHeads("groups (GQA)", groups, 2 * groups * head_size),
        KeptHeads("one head (MQA)", 1, 2 * head_size),
        KeptHeads("latent (MLA)", 0, latent + rotary),
    )


def _finding(kinds: tuple[KeptHeads, ...]) -> str:
    most, least = kinds[0].numbers, kinds[-1].numbers
    return f"Fewer heads keep less, and a latent for all of them {least:,} instead of {most:,}"
