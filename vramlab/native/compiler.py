"""The C compiler: the system's, or the one that the package ziglang brings."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from vramlab.native.errors import NativeEngineError

_TIMEOUT_S = 300
_LAST_LINES = 15
_FLAGS = (
    *("-shared", "-fPIC", "-O1", "-std=gnu11", "-fvisibility=hidden", "-w"),
    # Functions of different types share a name: NVIDIA's, and the weak ones that refuse.
    *("-fno-strict-aliasing", "-fno-builtin"),
)


def find_compiler() -> tuple[str, ...]:
    """Find a C compiler: $CC, cc, gcc, clang, or ziglang's; the words that call it.

    Raises:
        NativeEngineError: there is none.
    """
    if os.environ.get("CC"):
        words = shlex.split(os.environ["CC"])
        if shutil.which(words[0]):
            return tuple(words)
        raise NativeEngineError(
            f"invalid CC={os.environ['CC']!r}: no such program. Fix or unset the variable."
        )
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return (path,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "cc")
    raise NativeEngineError(
        "no C compiler found (cc, gcc or clang). Install one, for example with `apt install gcc` "
        "or `pip install ziglang`."
    )


def link(
    compiler: Sequence[str],
    out: Path,
    sources: Sequence[Path],
    *,
    include: Path,
    macros: Mapping[str, int],
    libraries: Sequence[Path] = (),
    version_script: Path | None = None,
) -> None:
    """Compile sources into one shared library, which finds its neighbours in its own folder.

    Args:
        compiler: from `find_compiler`.
        out: the file to write; its name becomes the library's soname.
        sources: C files.
        include: folder for headers.
        macros: what to define.
        libraries: shared libraries to link with.
        version_script: gives symbols their versions.

    Raises:
        NativeEngineError: the compiler fails; the message has the end of what it said.
    """
    command = [
        *compiler,
        *_FLAGS,
        *(f"-I{include}", "-o", str(out)),
        *(f"-D{name}={value}" for name, value in macros.items()),
        *map(str, sources),
        *map(str, libraries),
        *(f"-Wl,-soname,{out.name}", "-Wl,-rpath,$ORIGIN"),
        *((f"-Wl,--version-script={version_script}",) if version_script else ()),
        *("-ldl", "-lpthread"),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeEngineError(f"the C compiler failed to start: {error}") from error
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-_LAST_LINES:])
        raise NativeEngineError(
            f"{' '.join(compiler)} cannot make {out.name} (status {done.returncode}):\n{said}"
        )
