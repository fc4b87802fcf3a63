"""Tables that say in which pages the text of each request lies, and the pages themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.diagram import PAPER, Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, Look

_OWN = CATEGORY_LOOKS[Category.ACTIVATIONS]
_SHARED = Look(style.GREY)
_TINTS = (0.0, 0.45, 0.75)
"""Of one request after another; of a fourth, the first again."""
_MOST_PAGES = 32
_ROW_IN, _PAGE_IN, _GAP_IN = 0.5, 0.34, 0.04
_EDGE_IN = 0.015
_LEFT_IN, _ACROSS = 1.3, 16

Tables = Mapping[str, Sequence[int]]


def draw_page_tables(
    tables: Tables,
    lengths: Mapping[str, int],
    *,
    pages: int,
    page_tokens: int,
    page_bytes: int,
    title: str = "",
) -> Picture:
    """Draw which pages each request has, in the order of its text, and below them all pages.

    A page has the tint of its request. A page that several requests have is grey: it is drawn
    in each of their rows, and below them once.

    Args:
        tables: numbers of the pages of each request, by name.
        lengths: tokens of each request.
        pages: how many there are.
        page_tokens: of a page.
        page_bytes: of a page.
        title: what is to be seen.

    Raises:
        ValueError: there are too many pages, or too many in a row.
    """
    check_drawable(pages, "pages", 1, _MOST_PAGES)
    check_drawable(max(map(len, tables.values())), "pages of a request", 1, _ACROSS)
    title = title or _finding(tables, page_bytes)
    holders = _holders(tables)
    looks = _looks(tables, holders)
    rows = -(-pages // _ACROSS)
    diagram = Diagram((len(tables) + rows) * _ROW_IN + 0.7, title)
    y = diagram.height_in
    for name, table in tables.items():
        y -= _ROW_IN
        diagram.write(0.25, y + 0.17, name, ha="left", small=False, bold=True)
        for place, page in enumerate(table):
            filled = min(max(lengths[name] - place * page_tokens, 0), page_tokens) / page_tokens
            _draw_page(diagram, place, y, page, looks.get(page), filled)
        diagram.write(8.8, y + 0.17, f"{lengths[name]:,} tokens", ha="right")
    y -= 0.15
    for first in range(0, pages, _ACROSS):
        y -= _ROW_IN
        if not first:
            diagram.write(0.25, y + 0.17, "all pages", ha="left", small=False)
        for page in range(first, min(first + _ACROSS, pages)):
            _draw_page(diagram, page - first, y, page, looks.get(page), 1.0)
    tints = {name: _tint(number) for number, name in enumerate(tables)}
    names = tints if len(tables) <= len(_TINTS) else {"of one request": _OWN}
    shared = {"shared": _SHARED} if max(holders.values()) > 1 else {}
    diagram.key({**names, **shared}, _LEFT_IN, 0.18)
    diagram.write(8.8, 0.18, f"dashed: free; a page takes {short_size(page_bytes)}", ha="right")
    return diagram.finish(
        describe_page_tables(
            tables,
            lengths,
            pages=pages,
            page_tokens=page_tokens,
            page_bytes=page_bytes,
            title=title,
        )
    )


def describe_page_tables(
    tables: Tables,
    lengths: Mapping[str, int],
    *,
    pages: int,
    page_tokens: int,
    page_bytes: int,
    title: str = "",
) -> str:
    """Describe what `draw_page_tables` draws."""
    listed = "; ".join(
        f"{name}: {lengths[name]:,} tokens in pages {', '.join(map(str, table))}"
        for name, table in tables.items()
    )
    free = pages - len(_holders(tables))
    return (
        f"{title or _finding(tables, page_bytes)}. Pages of {page_tokens} tokens, "
        f"{short_size(page_bytes)} each. {listed}. {free} of {pages} pages are free."
    )


def _draw_page(
    diagram: Diagram, place: int, y: float, page: int, look: Look | None, filled: float
) -> None:
    """Draw one page; without a look it is free."""
    x = _LEFT_IN + place * (_PAGE_IN + _GAP_IN)
    is_full = look is not None and filled == 1
    shown = look if look is not None and is_full else PAPER
    diagram.box(x, y, _PAGE_IN, _PAGE_IN, "", shown, dashed=look is None)
    if look is not None and not is_full:
        inside = _PAGE_IN - 2 * _EDGE_IN
        diagram.area(
            x + _EDGE_IN, y + _EDGE_IN, inside * filled, inside, look, edged=False
        )  # an edge would cross the number
    diagram.write(x + _PAGE_IN / 2, y + _PAGE_IN / 2, str(page))


def _holders(tables: Tables) -> Counter[int]:
    return Counter(page for table in tables.values() for page in table)


def _tint(number: int) -> Look:
    return _OWN.paler(_TINTS[number % len(_TINTS)])


def _looks(tables: Tables, holders: Mapping[int, int]) -> dict[int, Look]:
    """Return the look of each page that a request has."""
    return {
        page: _SHARED if holders[page] > 1 else _tint(number)
        for number, table in enumerate(tables.values())
        for page in table
    }


def _finding(tables: Tables, page_bytes: int) -> str:
    there = len(_holders(tables))
    alone = sum(map(len, tables.values()))
    if there == alone:
        return f"{len(tables)} requests hold {there} pages, scattered over the cache"
    return (
        f"A shared prefix is stored once: {short_size(there * page_bytes)} instead of "
        f"{short_size(alone * page_bytes)}"
    )
