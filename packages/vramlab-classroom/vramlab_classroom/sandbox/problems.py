"""What kept an answer from being given, as an answer's process says it: the same for all answers.

Imports nothing of vramlab, which is not there where plain answers run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any

MAX_CHARACTERS = 200
"""Of a message, and of a line."""


_RAISES = re.compile(r"\b(raise|assert|throw)\b")


def problem(
    error: BaseException, source: str, file: str, *, own: type[Exception] | tuple[()] = ()
) -> dict[str, Any]:
    """Return what kept an answer from being given, with the learner's line where it happened.

    Args:
        error: what was raised.
        source: of the answer.
        file: the name by which the answer was compiled.
        own: errors of ours, whose message says all.

    Returns:
        The `problem`; or that the answer is `unanswered`, if it says so itself.
    """
    if isinstance(error, NotImplementedError):
        return {"problem": "", "unanswered": True}
    line = own_line(error, source, file)
    text = type(error).__name__.lstrip("_")
    with suppress(BaseException):  # what an answer raises may have a text that fails
        message = _cut(f"{error.msg if isinstance(error, SyntaxError) else error}")
        if message and not isinstance(error, own) and _RAISES.search(line or ""):
            message = f'"{message}"'  # the answer's own words, which are no verdict
        text = message if isinstance(error, own) else ": ".join(filter(None, (text, message)))
    return {"problem": f"{text}\n    in the line: {line}" if line else text}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 3]}..."


def own_line(error: BaseException, source: str, file: str) -> str | None:
    """Find the innermost line of the answer in an error's traceback."""
    number = own_line_number(error, file)
    lines = source.splitlines()
    if number is None or not 0 < number <= len(lines):
        return None
    return lines[number - 1].strip()[:MAX_CHARACTERS]


def own_line_number(error: BaseException, file: str) -> int | None:
    """Find the number of the innermost line of the answer in a traceback, counted from 1."""
    number: int | None = None
    if isinstance(error, SyntaxError) and type(error.lineno) is int:
        number = error.lineno
    for name, line in _frames(error.__traceback__):
        number = line if name == file else number
    return number


def _frames(traceback: TracebackType | None) -> Iterator[tuple[str, int]]:
    while traceback is not None:
        yield traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next
