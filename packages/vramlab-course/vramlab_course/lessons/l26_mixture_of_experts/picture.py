"""Which tokens go to which experts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vramlab.measure import Category
from vramlab_course.plots import style
from vramlab_course.plots.diagram import Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS

_WIDTH_IN = 8.4
_LEFT_IN = 0.3
_MOST = 16

Choices = Sequence[Sequence[int]]


def draw_routing(
    tokens: Sequence[str], chosen: Choices, experts: int, *, title: str = ""
) -> Picture:
    """Draw tokens, and lines to the experts that each of them goes to.

    Args:
        tokens: words to show.
        chosen: numbers of each token's experts.
        experts: how many there are.
        title: what is to be seen.

    Raises:
        ValueError: there are too many tokens or experts to draw.
    """
    check_drawable(len(tokens), "tokens", 1, _MOST)
    check_drawable(experts, "experts", 2, _MOST)
    counts = Counter(expert for each in chosen for expert in each)
    diagram = Diagram(2.5, title or _finding(chosen, experts))
    activations = CATEGORY_LOOKS[Category.ACTIVATIONS]
    parameters = CATEGORY_LOOKS[Category.PARAMETERS]
    step = _WIDTH_IN / experts
    tops = []
    for expert in range(experts):
        x = _LEFT_IN + expert * step
        count = counts[expert]
        box = diagram.box(x + 0.05, 1.55, step - 0.1, 0.5, f"expert {expert}", parameters)
        diagram.write(box.top[0], 2.22, f"{count} token{'' if count == 1 else 's'}")
        tops.append(box.bottom)
    step = _WIDTH_IN / len(tokens)
    for number, (token, experts_of) in enumerate(zip(tokens, chosen, strict=True)):
        box = diagram.box(
            _LEFT_IN + number * step + 0.05, 0.3, step - 0.1, 0.34, token, activations
        )
        for expert in experts_of:
            diagram.arrow(box.top, tops[expert], color=style.INK, width=0.9)
    return diagram.finish(describe_routing(tokens, chosen, experts, title=title))


def describe_routing(
    tokens: Sequence[str], chosen: Choices, experts: int, *, title: str = ""
) -> str:
    """Describe what `draw_routing` draws."""
    listed = "; ".join(
        f"{token} goes to {' and '.join(map(str, experts_of))}"
        for token, experts_of in zip(tokens, chosen, strict=True)
    )
    return f"{title or _finding(chosen, experts)}. {experts} experts. {listed}."


def _finding(chosen: Choices, experts: int) -> str:
    used = len({expert for each in chosen for expert in each})
    return f"Each token goes to {len(chosen[0])} of {experts} experts; all tokens need {used}"
