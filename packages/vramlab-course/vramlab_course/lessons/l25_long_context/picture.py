"""Ring attention: whose keys and values each rank has at which turn."""

from __future__ import annotations

from collections.abc import Sequence

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots.diagram import Diagram, check_drawable
from vramlab_course.plots.picture import WIDTH_IN, Picture
from vramlab_course.plots.style import tints_of

_MOST = 8
_LEFT_IN, _TOP_IN = 1.5, 0.55
_HEIGHT_IN = 0.44
_LOOKS = tuple(tints_of(Category.ACTIVATIONS, [str(block) for block in range(_MOST)]).values())
"""Keys and values are activations, whichever rank they come from."""


def draw_ring_turns(turns: Sequence[Sequence[int]], block_bytes: int, *, title: str) -> Picture:
    """Draw a row for each rank, and in it the blocks of keys and values that come by.

    Source: Liu, Zaharia, Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite
    Context", 2023, figure 2.

    Args:
        turns: for each rank, the block that it has at each turn.
        block_bytes: keys and values of a block.
        title: what is to be seen.

    Raises:
        ValueError: that many ranks cannot be drawn.
    """
    ranks = len(turns)
    check_drawable(ranks, "ranks", 2, _MOST)
    diagram = Diagram(_TOP_IN + ranks * (_HEIGHT_IN + 0.1) + 0.35, title)
    pitch = (WIDTH_IN - _LEFT_IN - 0.2) / ranks
    for turn in range(ranks):
        x = _LEFT_IN + turn * pitch
        diagram.write(x + pitch / 2 - 0.1, diagram.height_in - 0.2, f"turn {turn}", bold=True)
    for rank, blocks in enumerate(turns):
        y = diagram.height_in - _TOP_IN - (rank + 1) * (_HEIGHT_IN + 0.1) + 0.15
        diagram.write(0.15, y + _HEIGHT_IN / 2, f"rank {rank}, queries {rank}", ha="left")
        for turn, block in enumerate(blocks):
            x = _LEFT_IN + turn * pitch
            words = f"keys, values {block}"
            diagram.box(x, y, pitch - 0.3, _HEIGHT_IN, words, _LOOKS[block])
            if turn:
                above = y + _HEIGHT_IN + 0.1 + _HEIGHT_IN / 2
                start = (x - 0.3, above) if rank else (x - 0.3, y + _HEIGHT_IN / 2 + 0.08)
                if rank:
                    diagram.arrow(start, (x, y + _HEIGHT_IN / 2))
                else:
                    diagram.write(x - 0.15, y + _HEIGHT_IN / 2, f"from\n{ranks - 1}")
    words = f"A block is {short_size(block_bytes)}; each rank sends {ranks - 1} of them on."
    diagram.write(_LEFT_IN, 0.14, words, ha="left", small=False, bold=True)
    return diagram.finish(describe_ring_turns(turns, block_bytes, title=title))


def describe_ring_turns(turns: Sequence[Sequence[int]], block_bytes: int, *, title: str) -> str:
    """Describe what `draw_ring_turns` draws."""
    told = " ".join(
        f"Rank {rank} has block {', then '.join(map(str, blocks))}."
        for rank, blocks in enumerate(turns)
    )
    return (
        f"{title}. Keys and values of {short_size(block_bytes)} a block go around {len(turns)} "
        f"ranks; queries stay. {told}"
    )
