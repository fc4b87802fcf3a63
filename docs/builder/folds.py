"""Gives names to what can be folded in the theme's list of pages.

The theme writes these switches with an arrow and no words, so that a screen reader has nothing to
say of them; axe finds that out (tests/browser).
"""

from __future__ import annotations

import re
from pathlib import Path

_SWITCH = re.compile(
    r"(?P<page><a [^>]*>(?P<name>[^<]*)</a>)"
    r'(?P<fold><details[^>]*>)<summary>(?=<span class="toctree-toggle")'
)
"""A page's name and the switch beside it that unfolds the pages below."""


def name_switches(html: Path) -> None:
    """Name each switch in the finished pages after the page whose parts it unfolds."""
    for path in html.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        named = _SWITCH.sub(r'\g<page>\g<fold><summary aria-label="Pages below \g<name>">', page)
        if named != page:
            path.write_text(named, encoding="utf-8")
