"""A `TimelineView` as HTML that needs nothing else: data, style and script in one piece."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path

from vramlab.viz.timeline_view import TimelineView
from vramlab.words import say

_HERE = Path(__file__).parent
_SAID = re.compile(r"""\bsay\((['"])(.*?)\1""")
"""What the script says, and has others say in the reader's language."""


PAGE_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 0 auto; padding: 1em; }
h1 { font-size: 1.4em; overflow-wrap: anywhere; }
h2 { font-size: 1.2em; margin-top: 2em; overflow-wrap: anywhere; }
table { display: block; overflow-x: auto; margin-top: 1em; }
th[scope=row] { font-weight: normal; }
td, th { border-bottom: 1px solid color-mix(in srgb, currentColor 25%, transparent); }
td { font-variant-numeric: tabular-nums; }
fieldset { border: 0; padding: 0; margin-top: 2em; }
legend { font-weight: bold; }
label { display: inline-block; margin-right: 0.5em; }
"""
"""Of a page with timelines and tables."""


def timeline_html(view: TimelineView, still: str = "") -> str:
    """Write a piece of HTML that shows a timeline and answers what it is asked.

    Args:
        view: what is shown.
        still: HTML for pages that run no scripts, such as a picture with alternative text; the
            description in words if empty.
    """
    still = still or f"<p>{escape(view.describe())}</p>"
    # A tag in the name of a file must not end the script, or begin another.
    told = {**view.to_dict(), "words": dict(_in_readers_language())}
    data = json.dumps(told, separators=(",", ":")).replace("<", "\\u003c")
    script = _script()
    style = (_HERE / "timeline.css").read_text(encoding="utf-8")
    return (
        f'<div class="vramlab-timeline"><style>{style}</style>'
        f'<div class="vt-static">{still}</div>'
        f"<script>({_expression(script)})(document.currentScript.parentElement, {data});</script>"
        "</div>"
    )


def said_by_the_script() -> list[str]:
    """Return what a timeline says to its reader, in English, with {} where values come."""
    return list(dict.fromkeys(words for _, words in _SAID.findall(_script())))


def _in_readers_language() -> Iterator[tuple[str, str]]:
    for english in said_by_the_script():
        told = say(english)
        if told != english:
            yield english, told


@cache
def _script() -> str:
    return (_HERE / "timeline.js").read_text(encoding="utf-8")


def _expression(script: str) -> str:
    """Leave out the comments that the file begins with; the rest is one function."""
    lines = script.splitlines()
    first = next(number for number, line in enumerate(lines) if not line.startswith("//"))
    return "\n".join(lines[first:])
