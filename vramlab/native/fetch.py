"""Fetch single wheels through pip, and unpack them into the cache."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vramlab.native.builds import cache_folder
from vramlab.native.errors import NativeEngineError
from vramlab.units import GIB

_TIMEOUT_S = 3600
_NEEDED_BYTES = 5 * GIB // 2
"""A wheel of 0.5 GiB and the 1.1 GiB that it unpacks to, with room for larger ones."""


def fetch(requirement: str, name: str) -> Path:
    """Download one wheel, without what it depends on, and unpack it.

    pip is the running Python's, and asks where it is configured to ask. Its progress shows.

    Args:
        requirement: as pip takes it, such as `torch===2.11.0`.
        name: of the folder in the cache.

    Returns:
        The folder; it was there already, or is complete.

    Raises:
        NativeEngineError: the disk is full, pip cannot be used or finds nothing.
    """
    folder = cache_folder() / "sites" / name
    if folder.is_dir():
        return folder
    with temporary_folder() as temporary:
        free_bytes = shutil.disk_usage(temporary).free
        if free_bytes < _NEEDED_BYTES:
            raise NativeEngineError(
                f"{temporary.parent} has {free_bytes / GIB:.1f} GiB left, and {requirement} takes "
                f"{_NEEDED_BYTES / GIB:.1f} GiB while it is unpacked. Make room, or set "
                "XDG_CACHE_HOME to a folder on a larger disk."
            )
        wheel = _download(requirement, temporary)
        site = temporary / "site"
        try:
            _unpack(wheel, site)
            wheel.unlink()
        except (OSError, zipfile.BadZipFile) as error:
            raise NativeEngineError(f"{wheel.name} cannot be unpacked: {error}") from error
        folder.parent.mkdir(parents=True, exist_ok=True)
        move_into_place(site, folder)
    return folder


def _unpack(wheel: Path, site: Path) -> None:
    """Unpack a wheel. Programs in it, such as Triton's assembler, stay executable."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = archive.extract(member, site)
            if member.external_attr >> 16 & stat.S_IXUSR and not member.is_dir():
                os.chmod(path, 0o755)


def _download(requirement: str, folder: Path) -> Path:
    """Let pip download a wheel into a folder; its path."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--dest", str(folder), requirement]
    try:
        done = subprocess.run(command, timeout=_TIMEOUT_S, stdout=sys.stderr)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeEngineError(f"pip cannot be used: {error}") from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise NativeEngineError(
            f"pip found no {requirement} for {sys.implementation.name} "
            f"{sys.version_info.major}.{sys.version_info.minor} on this platform (its status: "
            f"{done.returncode}; what it said is above)."
        )
    return wheels[0]


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder in the cache, on the same disk as what it is moved to; it does not stay."""
    parent = cache_folder()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix="unfinished-", dir=parent))
    except OSError as error:
        raise NativeEngineError(f"the cache {parent} cannot be written: {error}") from error
    try:
        yield temporary
    except OSError as error:  # a disk that became full meanwhile
        raise NativeEngineError(f"the cache {parent} cannot be written: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def move_into_place(made: Path, wanted: Path) -> None:
    """Rename a finished folder; where another process was faster, its folder stays."""
    try:
        os.rename(made, wanted)
    except OSError:
        if not wanted.is_dir():
            raise
