"""A cache of keys and values that grows page by page, beside one that is reserved at once."""

from __future__ import annotations

from collections.abc import Mapping

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots.diagram import Diagram
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, Look

_MOST_PAGES = 64
_USED = CATEGORY_LOOKS[Category.ACTIVATIONS]
_ROW_IN = 0.62


def draw_pages(
    tokens: Mapping[str, int],
    *,
    page_tokens: int,
    longest: int,
    token_bytes: int,
    title: str = "",
) -> Picture:
    """Draw the pages of some requests: filled as far as tokens are there, dashed what is not taken.

    For example `draw_pages({"Anna": 37, "Ben": 5}, page_tokens=16, longest=128,
    token_bytes=2 * layers * kv_heads * head_size * 2)`. Source of the pages: Kwon et al.,
    "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023.

    Args:
        tokens: of each request until now, by name.
        page_tokens: that a page has room for.
        longest: tokens that a request may have; reserved at once where there are no pages.
        token_bytes: keys and values of a token in all layers.
        title: what is to be seen.

    Raises:
        ValueError: a request is longer than the longest, or there are too many pages to draw.
    """
    across = -(-longest // page_tokens)
    if across > _MOST_PAGES or max(tokens.values()) > longest:
        raise ValueError(
            f"{across} pages of {page_tokens} tokens, for requests of up to "
            f"{max(tokens.values())} tokens: at most {_MOST_PAGES} pages can be drawn, and "
            f"no request may be longer than {longest}"
        )
    title = title or _finding(tokens, page_tokens, longest, token_bytes)
    diagram = Diagram(len(tokens) * _ROW_IN + 0.75, title)
    each = 6.1 / across
    y = diagram.height_in
    for name, count in tokens.items():
        y -= _ROW_IN
        pages = -(-count // page_tokens)
        diagram.write(0.25, y + 0.2, name, ha="left", small=False, bold=True)
        for page in range(across):
            x = 1.3 + page * each
            diagram.box(x, y, each - 0.03, 0.4, "", dashed=page >= pages)
            filled = min(max(count - page * page_tokens, 0), page_tokens) / page_tokens
            if filled:
                diagram.box(x, y, (each - 0.03) * filled, 0.4, "", _USED)
        wasted = short_size((pages * page_tokens - count) * token_bytes)
        words = f"{count} tokens: {short_size(pages * page_tokens * token_bytes)}"
        diagram.write(7.5, y + 0.2, f"{words}\n{wasted} of it empty", ha="left")
    diagram.key(
        {
            f"tokens: {short_size(token_bytes)} each": _USED,
            f"room in a page of {page_tokens}": Look("white"),
        },
        1.3,
        0.2,
    )
    diagram.write(7.5, 0.2, "dashed: not taken yet", ha="left")
    return diagram.finish(
        describe_pages(
            tokens, page_tokens=page_tokens, longest=longest, token_bytes=token_bytes, title=title
        )
    )


def describe_pages(
    tokens: Mapping[str, int],
    *,
    page_tokens: int,
    longest: int,
    token_bytes: int,
    title: str = "",
) -> str:
    """Describe what `draw_pages` draws."""
    rows = "; ".join(
        f"{name}: {count} tokens in {-(-count // page_tokens)} pages"
        for name, count in tokens.items()
    )
    title = title or _finding(tokens, page_tokens, longest, token_bytes)
    return f"{title}. Pages of {page_tokens} tokens of {short_size(token_bytes)}. {rows}."


def _finding(tokens: Mapping[str, int], page_tokens: int, longest: int, token_bytes: int) -> str:
    paged = sum(-(-count // page_tokens) for count in tokens.values()) * page_tokens * token_bytes
    whole = len(tokens) * longest * token_bytes
    return f"In pages the cache takes {short_size(paged)}; reserved at once, {short_size(whole)}"
