"""`vramlab explain`: what a CUDA out-of-memory message of a real GPU says, and what to do next.

$ vramlab explain oom.log
$ python train.py 2>&1 | vramlab explain -
$ vramlab explain --json oom.log
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import sys
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from vramlab.errors import VramlabError

if TYPE_CHECKING:
    from vramlab.explaining.message import OutOfMemory

_EXIT_OK = 0
_STDIN = "-"
_GZIP, _XZ, _PICKLE, _ZIP = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x80", b"PK\x03\x04"


class UnreadableLog(VramlabError):
    """A file cannot be read as a log; the message says why, and what to pass."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `explain` to the command line."""
    parser = subparsers.add_parser(
        "explain",
        help="explain a real GPU's out-of-memory message",
        description="Read the CUDA out-of-memory messages in a log (PyTorch 1.4 or later), draw "
        "their numbers, name the likely cause, and show how to record a memory snapshot.",
    )
    parser.add_argument("file", help="a log, also compressed (gzip, xz); - reads standard input")
    parser.add_argument("--json", action="store_true", help="print it as JSON, in bytes")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Explain and print; return the exit status.

    Raises:
        VramlabError: the file cannot be read, or has no out-of-memory message.
    """
    from vramlab.explaining import message

    shown = "standard input" if arguments.file == _STDIN else arguments.file
    data = _read(arguments.file)
    # Snapshots branch off here: a folder of them, or data that begin with _PICKLE.
    if data.startswith((_PICKLE, _ZIP)):
        raise UnreadableLog(
            f"{shown}: this is no log, but a pickle or an archive. Pass the text that the program "
            "printed"
        )
    try:
        messages = message.find_messages(data.decode("utf-8-sig", "replace"))
    except message.NoMessage as error:
        raise message.NoMessage(f"{shown}: {error}") from None
    if arguments.json:
        print(json.dumps([_as_dict(each, messages) for each in messages], indent=2))
    else:
        print(message.as_text(messages, shown))
    return _EXIT_OK


def _as_dict(each: OutOfMemory, messages: Sequence[OutOfMemory]) -> dict[str, object]:
    from vramlab.explaining.message import explain_reading, reading

    suggested = reading(each, messages)
    return asdict(each) | {
        "reading": suggested.name.lower(),
        "explanation": explain_reading(each, suggested),
    }


def _read(path: str) -> bytes:
    """Read a file or standard input, and decompress it.

    Raises:
        UnreadableLog: it is missing, a folder, or damaged.
    """
    try:
        data = sys.stdin.buffer.read() if path == _STDIN else Path(path).read_bytes()
    except OSError as error:
        raise UnreadableLog(f"{path}: {error.strerror or error}. Pass the log's path") from error
    try:
        if data.startswith(_GZIP):
            return gzip.decompress(data)
        return lzma.decompress(data) if data.startswith(_XZ) else data
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UnreadableLog(f"{path}: damaged or cut off ({error}). Copy it again") from error
