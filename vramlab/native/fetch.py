"""Fetch single wheels through pip, and unpack them into the cache."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from vramlab import streams
from vramlab.native import cache
from vramlab.native.cache import in_use, move_into_place, temporary_folder
from vramlab.native.errors import NativeEngineError
from vramlab.units import GIB

_TIMEOUT_S = 3600
_MOST_VERSIONS = 8
_OFFERED = re.compile(r"\(from versions: (.+)\)")


def fetch(
    requirement: str,
    name: str,
    needed_bytes: int,
    problem_of: Callable[[Path], str | None] = lambda site: None,
) -> Path:
    """Download one wheel, without what it depends on, and unpack it.

    pip is the running Python's, and asks where it is configured to ask. Its progress shows.

    Args:
        requirement: as pip takes it, such as `torch===2.11.0`.
        name: of the folder in the cache.
        needed_bytes: what the wheel and its content take together, at least.
        problem_of: says why an unpacked wheel cannot be used; None: it can.

    Returns:
        The folder; it was there already, or is complete.

    Raises:
        NativeEngineError: the disk is full, pip cannot be used or finds nothing, or finds what
            cannot be used.
    """
    folder = cache.folder() / "sites" / name
    if folder.is_dir():
        _compile_python(folder)
        return folder
    if importlib.util.find_spec("pip") is None:
        raise NativeEngineError(
            f"downloading {requirement} needs pip, which this Python lacks. Install it: "
            f"`{sys.executable} -m ensurepip`"
        )
    with temporary_folder() as temporary:
        free_bytes = shutil.disk_usage(temporary).free
        if free_bytes < needed_bytes:
            raise NativeEngineError(
                f"{temporary.parent} has only {free_bytes / GIB:.1f} GiB of free disk space, but "
                f"unpacking {requirement} needs {needed_bytes / GIB:.1f} GiB. Free some space, or "
                "set XDG_CACHE_HOME to a folder on a larger disk."
            )
        wheel = _download(requirement, temporary)
        site = temporary / "site"
        try:
            _unpack(wheel, site)
        except (OSError, zipfile.BadZipFile) as error:
            raise NativeEngineError(f"{wheel.name} cannot be unpacked: {error}") from error
        if problem := problem_of(site):
            raise NativeEngineError(
                f"pip downloaded {wheel.name} for {requirement}, but {problem}. Check pip's index "
                "with `pip config list`, or pass a PyTorch that you unpacked yourself with --site."
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        move_into_place(site, folder)
    _compile_python(folder)
    return folder


def _compile_python(folder: Path) -> None:
    """Compile the Python files of what was unpacked, as pip does; unless some are compiled.

    A program whose Python writes no bytecode (PYTHONDONTWRITEBYTECODE, or a cache that cannot be
    written) compiles PyTorch's 800 files at each start otherwise. What does not compile stays.
    """
    has_python = next(folder.glob("*/*.py"), None) is not None
    if has_python and next(folder.glob("*/__pycache__"), None) is None:
        words = [sys.executable, "-m", "compileall", "-qq", "-j0", str(folder)]
        with suppress(OSError):
            subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _unpack(wheel: Path, site: Path) -> None:
    """Unpack a wheel. Programs in it, such as Triton's assembler, stay executable."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = archive.extract(member, site)
            if member.external_attr >> 16 & stat.S_IXUSR and not member.is_dir():
                os.chmod(path, 0o755)


def _download(requirement: str, folder: Path) -> Path:
    """Let pip download a wheel into a folder; its path."""
    words = ["download", "--no-deps", "--only-binary", ":all:", "--no-input", "--no-cache-dir"]
    words += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    status, complaints = _run_pip(words, folder)
    wheels = list(folder.glob("*.whl"))
    if status or not wheels:
        raise NativeEngineError(_why_not(requirement, status, complaints))
    return wheels[0]


def _run_pip(words: Sequence[str], folder: Path) -> tuple[int, list[str]]:
    """Run pip, which writes into a folder alone; its status, and its complaints, which show.

    The folder counts as in use until pip has ended, even if this process is killed before.
    """
    with in_use(folder) as lock:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "pip", *words],
                stdout=_terminal(),
                stderr=subprocess.PIPE,
                env={**os.environ, "TMPDIR": str(folder)},
                text=True,
                errors="replace",
                pass_fds=(lock,),
            )
        except OSError as error:
            raise NativeEngineError(f"pip cannot be used: {error}") from error
    complaints: list[str] = []
    with process:
        assert process.stderr is not None
        reader = threading.Thread(target=_pass_on, args=(process.stderr, complaints))
        reader.start()
        try:
            process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise NativeEngineError(f"pip cannot be used: {error}") from error
        finally:
            process.kill()  # nothing happens if it has ended
            reader.join()
    return process.returncode, complaints


def _terminal() -> IO[str] | int:
    """Where pip's progress goes: to our stderr itself, if that is a file."""
    try:
        sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return subprocess.DEVNULL
    return sys.stderr


def _pass_on(pipe: IO[str], lines: list[str]) -> None:
    for line in pipe:
        lines.append(line.strip())
        streams.print_error(line.rstrip())


def _why_not(requirement: str, status: int, complaints: Sequence[str]) -> str:
    """Explain why pip fetched nothing, as far as its complaints tell."""
    if any("Retry(total=0," in line for line in complaints):  # the last time that it tried
        return f"pip cannot reach where it looks for {requirement}: is there a network?"
    python = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
    errors = [line.removeprefix("ERROR: ") for line in complaints if line.startswith("ERROR: ")]
    for offered in filter(None, map(_OFFERED.search, errors)):
        versions = offered[1].split(", ")[-_MOST_VERSIONS:]
        have = "nothing" if versions == ["none"] else f"its newest are {', '.join(versions)}"
        return f"pip found no {requirement} for {python} on this platform: {have}."
    # What pip did not foresee ends in a traceback, under "ERROR: Exception:".
    told = [line for line in errors if line != "Exception:"] or [*filter(None, complaints)]
    said = (told or ["nothing"])[-1]
    return f"pip cannot fetch {requirement} (its status: {status}). It says: {said}"
