"""How far a run is, in words."""

from __future__ import annotations

import io

from vramlab_classroom.run.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(stream: io.StringIO, seconds_each: float, total: int = 10) -> Progress:
    seconds = iter(count * seconds_each for count in range(1000))
    return Progress(total, stream, lambda: next(seconds))


def test_a_terminal_has_one_line_that_is_rewritten() -> None:
    stream = Terminal()
    shown = progress(stream, seconds_each=1.0)
    shown.add(graded=True)
    shown.add(graded=True, needs_human=True)
    shown.end()
    lines = stream.getvalue().split("\r\x1b[K")
    # Looking at the clock takes a second here: 2 s for each submission.
    assert lines == [
        "",
        "1 of 10 submissions, 30 per minute, less than a minute left",
        "2 of 10 submissions, 30 per minute, less than a minute left, 1 for a human",
        "",
    ]


def test_what_was_graded_before_does_not_count_as_speed() -> None:
    shown = progress(io.StringIO(), seconds_each=1.0)
    shown.add(graded=False)
    assert shown.text() == "1 of 10 submissions"
