"""A report as it is shown where it goes: on a terminal, or in a log."""

from __future__ import annotations

from typing import Any

from vramlab import streams
from vramlab.report.showing.text import as_text
from vramlab.report.summary import Summary


def as_shown(summary: Summary, stream: Any) -> str:
    """Set a report for a terminal, or as plain text for anything else that a stream leads to."""
    if not streams.is_terminal(stream):
        return as_text(summary)
    try:
        from vramlab.report.showing.terminal import as_terminal_text
    except ImportError:  # the program's folder has a `rich` of its own
        return as_text(summary)
    return as_terminal_text(summary, stream)
