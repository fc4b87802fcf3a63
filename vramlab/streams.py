"""What vramlab says reaches its reader, whatever has become of stdout and stderr.

Programs put loggers in their place, which need have neither isatty() nor flush(), close them, or
lead their file descriptors elsewhere. Where a process is started without them, they are None.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def is_terminal(stream: Any) -> bool:
    """Return whether a stream leads to a terminal; one that cannot say does not."""
    try:
        return bool(stream.isatty())
    except Exception:
        return False


def flush(stream: Any) -> None:
    """Write out what a stream holds back, if it can.

    Raises:
        BrokenPipeError: the reader closed the pipe.
    """
    try:
        stream.flush()
    except BrokenPipeError:
        raise
    except Exception:
        return


def write(text: str, *streams: Any) -> None:
    """Write to the first stream that accepts the text. If none does, the text is lost.

    Characters that a stream's encoding does not have are escaped, as on stderr.

    Raises:
        BrokenPipeError: the reader closed the pipe.
    """
    for stream in streams:
        try:
            try:
                stream.write(text)
            except UnicodeEncodeError:
                stream.write(text.encode("ascii", "backslashreplace").decode())
        except BrokenPipeError:
            raise
        except Exception:
            continue
        flush(stream)
        return


def cannot_write(path: str) -> str:
    """Return why a file cannot be written at a path, for the user; '' if nothing speaks against it.

    To be asked before the work whose result it is to hold.
    """
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        return f"vramlab: can't write {path!r}: its folder does not exist"
    if os.path.isdir(path):
        return f"vramlab: can't write {path!r}: it is a folder, not a file"
    return ""


def print_error(text: str) -> None:
    """Print a line on stderr, or, where a program has made that useless, on the process's own."""
    write(f"{text}\n", sys.stderr, sys.__stderr__)


@contextmanager
def lasting(stream: Any) -> Iterator[Any]:
    """Return a stream that goes on leading where `stream` leads now, whatever a program does to it.

    The process's own stderr gets a second file descriptor. Anything else, such as what a notebook
    or a test has put in its place, is given itself.
    """
    number = _own_file_descriptor(stream)
    if number is None:
        yield stream
        return
    with open(number, "w", encoding=stream.encoding, errors="backslashreplace") as second:
        yield second


def _own_file_descriptor(stream: Any) -> int | None:
    """Return a second file descriptor of the process's own stderr; None if replaced."""
    is_own = stream is sys.__stderr__
    try:
        return os.dup(stream.fileno()) if is_own else None
    except (AttributeError, OSError, ValueError):  # it is None, has none, or is closed
        return None
