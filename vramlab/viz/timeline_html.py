"""A `TimelineView` as HTML that needs nothing else: data, style and script in one piece."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from vramlab.viz.timeline_view import TimelineView

_HERE = Path(__file__).parent


def timeline_html(view: TimelineView, still: str = "") -> str:
    """Write a piece of HTML that shows a timeline and answers what it is asked.

    Args:
        view: what is shown.
        still: HTML for pages that run no scripts, such as a picture with alternative text; the
            description in words if empty.
    """
    still = still or f"<p>{escape(view.describe())}</p>"
    # In a script, HTML's parser looks for the closing tag only.
    data = json.dumps(view.to_dict(), separators=(",", ":")).replace("</", "<\\/")
    script = (_HERE / "timeline.js").read_text(encoding="utf-8")
    style = (_HERE / "timeline.css").read_text(encoding="utf-8")
    return (
        f'<div class="vramlab-timeline"><style>{style}</style>'
        f'<div class="vt-static">{still}</div>'
        f"<script>({_expression(script)})(document.currentScript.parentElement, {data});</script>"
        "</div>"
    )


def _expression(script: str) -> str:
    """Leave out the comments that the file begins with; the rest is one function."""
    lines = script.splitlines()
    first = next(number for number, line in enumerate(lines) if not line.startswith("//"))
    return "\n".join(lines[first:])
