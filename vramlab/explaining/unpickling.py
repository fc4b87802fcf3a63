"""Read a memory snapshot without running what is in the file.

A pickle can call any function. A snapshot of PyTorch consists of dicts, lists, tuples, strings and
numbers, so this reader resolves no name at all.
"""

from __future__ import annotations

import gzip
import io
import lzma
import pickle
import re
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from vramlab.errors import VramlabError

STDIN = "-"

_GZIP, _XZ, _PICKLE, _ZIP = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x80", b"PK\x03\x04"


class UnreadableSnapshot(VramlabError):
    """A file is no memory snapshot; the message says what is wrong with it."""


class _PlainUnpickler(pickle.Unpickler):
    """Resolves no name."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise UnreadableSnapshot(
            f"it refers to {module}.{name}, which no memory snapshot does, so it was not opened. "
            "Write one with torch.cuda.memory._dump_snapshot('snapshot.pickle')"
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UnreadableSnapshot(
            "it refers to objects outside the file: it was written by torch.save, not by "
            "torch.cuda.memory._dump_snapshot"
        )


def read_bytes(path: str) -> bytes:
    """Read a file, or standard input for `-`, and decompress gzip and xz.

    Raises:
        UnreadableSnapshot: the file is missing, damaged or cut off.
    """
    try:
        data = sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except OSError as error:
        raise UnreadableSnapshot(
            f"{path}: {error.strerror or error}; pass a log or a memory snapshot"
        ) from error
    try:
        if data.startswith(_GZIP):
            return gzip.decompress(data)
        return lzma.decompress(data) if data.startswith(_XZ) else data
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UnreadableSnapshot(f"{path}: damaged or cut off ({error}). Copy it again") from error


def is_pickle(data: bytes, path: str) -> bool:
    """Return whether data begin as a pickle of protocol 2 or later does.

    Raises:
        UnreadableSnapshot: they are an archive, such as torch.save writes.
    """
    if data.startswith(_ZIP):
        raise UnreadableSnapshot(
            f"{path}: an archive, such as torch.save writes, is neither a log nor a snapshot"
        )
    return data.startswith(_PICKLE)


def snapshots_in(path: str) -> list[str]:
    """List the snapshots of a folder, one for each rank, or the path itself if it is none.

    Raises:
        UnreadableSnapshot: the folder has no file with `.pickle` or `.pkl` in its name.
    """
    if path == STDIN or not Path(path).is_dir():
        return [path]
    files = sorted(Path(path).iterdir())
    found = [f"{each}" for each in files if re.search(r"\.pickle|\.pkl", each.name)]
    if not found:
        raise UnreadableSnapshot(
            f"{path} is a folder without snapshots: pass one that has *.pickle or *.pkl files"
        )
    return found


def load_snapshot(data: bytes, path: str) -> Mapping[str, Any]:
    """Load a snapshot from what `read_bytes` gave.

    Args:
        data: the pickle.
        path: where it is from, for messages.

    Raises:
        UnreadableSnapshot: the data are empty, damaged, or no snapshot.
    """
    if not data:
        raise UnreadableSnapshot(f"{path}: the file is empty")
    stream: BinaryIO = io.BytesIO(data)
    try:
        loaded = _PlainUnpickler(stream).load()
    except UnreadableSnapshot as error:
        raise UnreadableSnapshot(f"{path}: {error}") from None
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, TypeError) as error:
        raise UnreadableSnapshot(f"{path}: damaged or cut off ({error or 'no pickle'})") from error
    except (MemoryError, OverflowError, AttributeError, UnicodeDecodeError) as error:
        raise UnreadableSnapshot(f"{path}: damaged ({error})") from error
    # PyTorch before 2.0 wrote the list of segments alone.
    snapshot = {"segments": loaded} if isinstance(loaded, list) else loaded
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("segments"), list):
        raise UnreadableSnapshot(
            f"{path}: a {type(loaded).__name__} without 'segments' is no memory snapshot"
        )
    return snapshot
