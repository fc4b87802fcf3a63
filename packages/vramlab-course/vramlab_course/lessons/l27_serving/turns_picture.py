"""Which request has which place of a server's batch when, one way under the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramlab_course.lessons.l27_serving.batching import Turn, last_step, used_share
from vramlab_course.plots import style
from vramlab_course.plots.bars import name_rows
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import Look

_WRITES, _EMPTY = Look(style.GREY), Look("white")
_ROW_IN, _HEIGHT, _PLOT_WIDTH_IN = 0.27, 0.8, 7.4

Ways = Mapping[str, Sequence[Turn]]


def draw_turns(ways: Ways, places: int, *, title: str = "") -> Picture:
    """Draw a row for each place of the batch; a box is a request, as long as it writes.

    Args:
        ways: to serve the same requests, by name.
        places: rows of the batch.
        title: what is to be seen.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not ways:
        raise ValueError("there is no way of serving to draw")
    longest = max(map(last_step, ways.values()))
    with style.house_style():
        picture = new_picture(0.75 + len(ways) * (0.55 + _ROW_IN * places))
        picture.suptitle(title or _finding(ways), x=0.01, ha="left", fontsize=style.TITLE_FONT_SIZE)
        for axes, (name, turns) in zip(
            picture.subplots(len(ways), sharex=True, squeeze=False)[:, 0], ways.items(), strict=True
        ):
            axes.set_title(f"{name}: {last_step(turns)} steps")
            axes.set_xlim(0, longest)
            for place in range(places):
                axes.broken_barh(
                    [(0, last_step(turns))],
                    (place - _HEIGHT / 2, _HEIGHT),
                    facecolor=_EMPTY.color,
                    edgecolor=style.INK,
                    linewidth=0.5,
                )
            for turn in turns:
                axes.broken_barh(
                    [(turn.start, turn.steps)],
                    (turn.place - _HEIGHT / 2, _HEIGHT),
                    facecolor=_WRITES.color,
                    edgecolor=style.INK,
                    linewidth=0.5,
                )
                label = str(turn.request + 1)
                if style.fits(axes, label, turn.steps, _PLOT_WIDTH_IN):
                    style.write_label(axes, turn.start + turn.steps / 2, turn.place, label, _WRITES)
            name_rows(axes, [f"place {place + 1}" for place in range(places)])
        axes.set_xlabel("steps: each writes a token for every request that is in the batch")
        picture.explain({"a request writes": _WRITES, "the place is empty": _EMPTY})
    picture.alt = describe_turns(ways, places, title=title)
    return picture


def describe_turns(ways: Ways, places: int, *, title: str = "") -> str:
    """Describe what `draw_turns` draws."""
    said = "; ".join(
        f"{name}: {last_step(turns)} steps, in which {used_share(turns, places):.0%} of the places "
        "write"
        for name, turns in ways.items()
    )
    requests = len(next(iter(ways.values())))
    return f"{title or _finding(ways)}. {requests} requests, {places} places. {said}."


def _finding(ways: Ways) -> str:
    return "The same answers: " + ", ".join(
        f"{name} {last_step(turns)} steps" for name, turns in ways.items()
    )
