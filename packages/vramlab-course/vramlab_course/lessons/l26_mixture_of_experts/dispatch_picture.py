"""What an all-to-all carries: from every rank's tokens to every rank's expert."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.patches import Polygon

from vramlab.measure import Category
from vramlab_course.plots import style
from vramlab_course.plots.diagram import Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS

_LEFT_IN = 0.3
_WIDTH_IN = 8.4
_GAP = 0.15
"""Between two ranks, as a part of what one of them sends."""
_BAR_IN = 0.3
_TOP_IN, _BOTTOM_IN = 1.95, 0.45
_MOST = 8

Sent = Sequence[Sequence[int]]


def draw_dispatch(sent: Sent, *, title: str) -> Picture:
    """Draw the tokens that ranks send each other, with widths in proportion to their number.

    Args:
        sent: tokens by sender and, within it, by receiver.
        title: what is to be seen.

    Raises:
        ValueError: there are too few or too many ranks, or rows of another length.
    """
    ranks = len(sent)
    check_drawable(ranks, "ranks", 2, _MOST)
    if lengths := {len(row) for row in sent} - {ranks}:
        raise ValueError(f"{ranks} ranks send to {ranks}, not to {min(lengths)}: complete each row")
    diagram = Diagram(2.5, title)
    own = CATEGORY_LOOKS[Category.ACTIVATIONS]
    received = [sum(row[rank] for row in sent) for rank in range(ranks)]
    total = sum(received)
    gap_in = _GAP * _WIDTH_IN / (ranks + _GAP * (ranks - 1))
    inch = (_WIDTH_IN - gap_in * (ranks - 1)) / total
    tops, bottoms = (
        _starts([inch * count for count in counts], gap_in)
        for counts in ([sum(row) for row in sent], received)
    )
    diagram.write(_LEFT_IN, _TOP_IN + _BAR_IN + 0.14, "sent by", ha="left")
    for rank in range(ranks):
        width_in = inch * sum(sent[rank])
        diagram.area(tops[rank], _TOP_IN, width_in, _BAR_IN, own, edged=True)
        diagram.write(tops[rank] + width_in / 2, _TOP_IN + _BAR_IN / 2, f"rank {rank}")
        width_in = inch * received[rank]
        diagram.area(bottoms[rank], _BOTTOM_IN - _BAR_IN, width_in, _BAR_IN, own, edged=True)
        diagram.write(bottoms[rank] + width_in / 2, _BOTTOM_IN - _BAR_IN / 2, f"{received[rank]:,}")
    busiest = received.index(max(received))
    for row, top in zip(sent, tops, strict=True):
        for rank, count in enumerate(row):
            left, right = top, top + inch * count
            start, end = bottoms[rank], bottoms[rank] + inch * count
            diagram.axes.add_patch(
                Polygon(
                    [(left, _TOP_IN), (right, _TOP_IN), (end, _BOTTOM_IN), (start, _BOTTOM_IN)],
                    facecolor=own.color if rank == busiest else style.GREY,
                    alpha=0.85 if rank == busiest else 0.4,
                    linewidth=0,
                    zorder=1.5 if rank == busiest else 1,
                )
            )
            top, bottoms[rank] = right, end
    diagram.write(_LEFT_IN, 0.05, "received, in tokens, by rank 0, 1, ...", ha="left")
    return diagram.finish(describe_dispatch(sent, title=title))


def describe_dispatch(sent: Sent, *, title: str) -> str:
    """Describe what `draw_dispatch` draws."""
    ranks = range(len(sent))
    received = ", ".join(f"rank {rank} {sum(row[rank] for row in sent):,}" for rank in ranks)
    return f"{title}. {len(sent)} ranks send {sum(sent[0]):,} tokens each. Received: {received}."


def _starts(widths_in: Sequence[float], gap_in: float) -> list[float]:
    starts = [_LEFT_IN]
    for width_in in widths_in[:-1]:
        starts.append(starts[-1] + width_in + gap_in)
    return starts
