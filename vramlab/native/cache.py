"""The native engine's part of the user's cache: every entry is complete, or gets removed.

Entries are built in temporary folders and moved into place. If a process is killed, the next one
removes its temporary folders: their locks show that no process writes to them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vramlab import user_cache
from vramlab.native.errors import NativeEngineError

_PREFIX = "unfinished-"
_LOCK = "in-use"


def folder() -> Path:
    """Find `vramlab/native` in the user's cache: in $XDG_CACHE_HOME, or else in ~/.cache."""
    return user_cache.folder() / "native"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder in the cache, on the same disk as what it is moved to; it does not stay.

    Raises:
        NativeEngineError: the cache cannot be written, or its disk is full.
    """
    parent = folder()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with _locked(parent):
            _remove_abandoned(parent)
            temporary = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            (temporary / _LOCK).touch()
            lock = _lock(temporary / _LOCK)
    except OSError as error:
        raise cannot_be_written(error) from error
    try:
        yield temporary
    except OSError as error:  # a disk that became full meanwhile
        raise cannot_be_written(error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(lock)


@contextmanager
def in_use(temporary: Path) -> Iterator[int]:
    """Return a file descriptor with which another process keeps a temporary folder in use."""
    lock = _lock(temporary / _LOCK)
    try:
        yield lock
    finally:
        os.close(lock)


def move_into_place(made: Path, wanted: Path) -> None:
    """Rename a finished folder; where another process was faster, its folder stays."""
    try:
        os.rename(made, wanted)
    except OSError:
        if not wanted.is_dir():
            raise


def remove(place: Path) -> None:
    """Remove a folder of the cache: all of it is gone from its place, or nothing is.

    Raises:
        NativeEngineError: it cannot be removed.
    """
    try:
        gone = tempfile.mkdtemp(prefix=_PREFIX, dir=folder())
        os.rename(place, gone)
    except OSError as error:
        raise cannot_be_written(error) from error
    shutil.rmtree(gone, ignore_errors=True)


def cannot_be_written(error: OSError) -> NativeEngineError:
    """Return the error for a cache that is read-only, full, or owned by another user."""
    return NativeEngineError(f"the cache {folder()} cannot be written: {error}")


def _remove_abandoned(parent: Path) -> None:
    """Remove temporary folders that no process writes to. The caller holds the parent's lock."""
    import fcntl

    for left in parent.glob(f"{_PREFIX}*"):
        try:
            file = os.open(left / _LOCK, os.O_RDONLY)
        except FileNotFoundError:
            shutil.rmtree(left, ignore_errors=True)
            continue
        except OSError:
            continue  # owned by another user
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # in use
        finally:
            os.close(file)


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Let one process at a time go on, where the file system has locks."""
    import fcntl

    file = os.open(place, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _lock(path: Path) -> int:
    """Share a file's lock until the descriptor is closed wherever it was passed on to.

    A file system without locks has none to ask for either: nothing is removed there.
    """
    import fcntl

    file = os.open(path, os.O_RDONLY)
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_SH)
    return file
