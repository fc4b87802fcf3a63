"""Which engine runs a program: the virtual GPU, or PyTorch's own CUDA code."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import vramlab
from vramlab.catalogue import GPUModel
from vramlab.native import builds, setup
from vramlab.native.builds import Build
from vramlab.native.errors import NativeEngineError
from vramlab.native.gpu import Streams
from vramlab.native.launch import run
from vramlab.native.setup import installed_release

Engine = Literal["auto", "portable", "native"]
ENGINES: tuple[Engine, ...] = get_args(Engine)

ENVIRONMENT = "VRAMLAB_ENGINE"
"""Environment variable with the engine of commands without --engine."""

_WHY = "VRAMLAB_ENGINE_WHY"

_COMMAND_LINE = """
import os, sys
own = int(not sys.flags.safe_path)
sys.path[:own] = sys.path[own : 2 * own]
if {home!r} not in sys.path:
    sys.path.insert(own + len(os.environ["PYTHONPATH"].split(os.pathsep)), {home!r})
from vramlab.cli import main
sys.exit(main())
"""
"""Finds this vramlab, but behind the build's PyTorch: another may lie beside it. The first place
in sys.path will be that of the program's folder, see `report/running/program.py`."""


@dataclass(frozen=True)
class Choice:
    """An engine."""

    native: bool
    why: str = ""
    """For the report; empty: there is nothing to say."""
    build: Build | None = None
    """Of the native engine: what to start; None: this process runs on it already."""


def is_inside() -> bool:
    """Return whether this process runs on the native engine."""
    return "VRAMLAB_NATIVE_GPU" in os.environ


def default_engine() -> str:
    """Read which engine $VRAMLAB_ENGINE names, or else take `auto`."""
    return os.environ.get(ENVIRONMENT) or "auto"


def choose(engine: str, version: str | None = None, *, portable_only: str = "") -> Choice:
    """Choose the engine for a program.

    Args:
        engine: one of `ENGINES`. `auto` takes the native engine where the PyTorch that is wanted is
            set up for it.
        version: the PyTorch that is wanted, such as `2.11`; None: the installed one.
        portable_only: what was asked for that only the virtual GPU has; empty: nothing.

    Raises:
        NativeEngineError: the native engine was asked for and cannot be had; or no such engine.
    """
    if engine not in ENGINES:
        raise NativeEngineError(f"invalid engine {engine!r}: use one of {', '.join(ENGINES)}.")
    if engine == "portable":
        return Choice(native=False)
    if engine == "native" and portable_only:
        raise NativeEngineError(
            f"{portable_only} works only on the portable engine: use --engine portable."
        )
    if is_inside():
        return Choice(native=True, why=os.environ.get(_WHY, ""))
    if engine == "native":
        return Choice(native=True, build=setup.find(version or _nearest_to_installed()))
    return _automatic(version, portable_only)


def _automatic(version: str | None, portable_only: str) -> Choice:
    found = builds.installed()
    if not found:
        return Choice(native=False)
    if portable_only:
        return Choice(native=False, why=f"{portable_only} works only there")
    try:
        wanted = version or _without_patch(installed_release())
    except NativeEngineError:  # no PyTorch is installed: the native engine has its own
        return Choice(native=True, build=setup.find(), why="no other PyTorch is installed")
    try:
        builds.find(wanted)
    except NativeEngineError:
        return Choice(native=False, why=f"the native engine has no PyTorch {wanted} set up")
    try:
        build = setup.find(wanted)
    except NativeEngineError as error:
        return Choice(native=False, why=f"the native one cannot be updated: {error}")
    return Choice(native=True, build=build, why=f"PyTorch {build.release} is set up for it")


def _nearest_to_installed() -> str | None:
    """Return the installed PyTorch's version where that one is set up; None: the newest that is."""
    try:
        version = _without_patch(installed_release())
        builds.find(version)
    except NativeEngineError:
        return None
    return version


def _without_patch(release: str) -> str:
    return ".".join(release.split(".")[:2])


def run_command(
    choice: Choice,
    words: Sequence[str],
    gpu: GPUModel,
    count: int = 1,
    *,
    streams: Streams = "early",
    variables: Mapping[str, str] | None = None,
) -> int:
    """Run one of vramlab's commands again, in a process on the native engine; its exit status.

    Args:
        choice: with a build.
        words: what follows `vramlab`.
        gpu: from the catalogue.
        count: how many of it.
        streams: when events complete.
        variables: of the environment, beside this process's own.

    Raises:
        NativeEngineError: the build cannot be used.
    """
    assert choice.build is not None
    home = str(Path(vramlab.__file__).parents[1])
    # How PyTorch finds the names of C++ functions; dladdr needs no other program.
    base = {"TORCH_SYMBOLIZE_MODE": "dladdr", **os.environ, _WHY: choice.why, **(variables or {})}
    again = ["-c", _COMMAND_LINE.format(home=home), *words]
    return run(choice.build, again, gpu, count, streams=streams, base=base)[0]
