"""Flash attention's tiles: which scores exist at one moment, and which are skipped."""

from __future__ import annotations

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots.diagram import Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, Look

_MOST = 16
_NOW, _DONE = CATEGORY_LOOKS[Category.TEMPORARIES], Look("#DDDDDD")
_KEYS = CATEGORY_LOOKS[Category.ACTIVATIONS]
_SCORE_BYTES = 4
"""The kernels compute scores in float32, whatever the type of queries and keys."""


def draw_tiles(
    length: int,
    tile: int,
    *,
    head_size: int,
    item_bytes: int = 2,
    causal: bool = True,
    title: str = "",
) -> Picture:
    """Draw the scores of one head as tiles, in the middle of the work of one multiprocessor.

    Source: Dao et al., "FlashAttention", 2022, algorithm 1; the order is FlashAttention-2's, a row
    of queries after the other. All multiprocessors do that at once, each with queries of its own.

    Args:
        length: of the sequence.
        tile: queries and keys in a tile.
        head_size: elements of a query.
        item_bytes: of an element of queries, keys and values.
        causal: whether keys that come later are masked: their tiles are skipped.
        title: what is to be seen.

    Raises:
        ValueError: more than 16 tiles in a row.
    """
    count = -(-length // tile)
    check_drawable(count, "tiles", 1, _MOST)
    title = title or _finding(length, tile)
    diagram = Diagram(3.7, title)
    left, top, side = 2.35, 3.0, 2.6
    each = side / count
    now = (count // 2, count // 4)
    for row in range(count):
        for column in range(count):
            skipped = causal and column > row
            look = _NOW if (row, column) == now else _DONE if (row, column) < now else Look("white")
            diagram.box(
                left + column * each,
                top - (row + 1) * each,
                each - 0.02,
                each - 0.02,
                "",
                look,
                dashed=skipped,
            )
    rows = short_size(tile * head_size * item_bytes)
    for number in range(count):
        mine = number == now[0]
        diagram.box(
            1.75, top - (number + 1) * each, 0.42, each - 0.02, "", _KEYS if mine else Look("white")
        )
        mine = number == now[1]
        diagram.box(
            left + number * each, top + 0.1, each - 0.02, 0.3, "", _KEYS if mine else Look("white")
        )
    diagram.write(1.6, top - side / 2, f"queries:\na tile has\n{rows}", ha="right")
    diagram.write(left + side / 2, top + 0.52, f"keys, and values with them: {rows} each in a tile")
    scores = short_size(length * length * _SCORE_BYTES)
    tile_scores = short_size(tile * tile * _SCORE_BYTES)
    words = f"scores of one tile: {tile_scores}\nin float32, on the chip"
    notes = {
        words: _NOW,
        "done: only a row's maximum, its sum\nand its output are kept": _DONE,
        "to come": Look("white"),
    }
    y = 2.65
    for text, look in notes.items():
        diagram.box(5.3, y, 0.3, 0.24, "", look)
        diagram.write(5.75, y + 0.12, text, ha="left")
        y -= 0.55
    if causal:
        diagram.box(5.3, y, 0.3, 0.24, "", dashed=True)
        diagram.write(5.75, y + 0.12, "masked: skipped", ha="left")
    whole = f"All tiles are {scores} for a head.\nThey are never in memory together."
    diagram.write(5.3, 0.55, whole, ha="left", small=False, bold=True)
    return diagram.finish(
        describe_tiles(
            length, tile, head_size=head_size, item_bytes=item_bytes, causal=causal, title=title
        )
    )


def describe_tiles(
    length: int,
    tile: int,
    *,
    head_size: int,
    item_bytes: int = 2,
    causal: bool = True,
    title: str = "",
) -> str:
    """Describe what `draw_tiles` draws."""
    count = -(-length // tile)
    drawn = count * (count + 1) // 2 if causal else count * count
    return (
        f"{title or _finding(length, tile)}. Scores of {length:,} queries and keys in "
        f"tiles of {tile:,}: {drawn} of {count * count} tiles are computed, one at a time on each "
        f"multiprocessor, from {short_size(tile * head_size * item_bytes)} each of queries, keys "
        "and values."
    )


def _finding(length: int, tile: int) -> str:
    whole, one = (short_size(n * n * _SCORE_BYTES) for n in (length, tile))
    return f"A multiprocessor holds one tile of {one}, of {whole} of scores in float32"
