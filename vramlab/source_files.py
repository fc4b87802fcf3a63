"""Whose code a file is, and how a report names it.

A frame of Python tells the file that its code comes from. To find the program's own line, reports
pass over libraries, whose files they name from the library on (`transformers/activations.py`),
wherever the environment lies: in the project, beside it, or in the system.

A library lies in a folder `site-packages` (Debian: `dist-packages`), or in a folder or zip file of
`sys.path` where `pip install --target` has put it. A package installed as editable is in no such
place; it is mostly the user's own, and counts as part of the program.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
from enum import Enum
from functools import cache
from pathlib import PurePath


class CodeOwner(Enum):
    """Whose code a file is."""

    VRAMLAB = "vramlab: what stands between a program and its GPU"
    PYTORCH = "PyTorch"
    PYTHON = "Python's library"
    PACKAGE = "any other installed package"
    PROGRAM = "the program, and vramlab's own models and experiments"
    NO_FILE = "code without a file, such as a dataclass's __init__"


PROGRAM_FOLDERS = ("planner", "programs", "zoo")
"""Parts of vramlab that use a GPU as programs do. The packages above it always do."""

_ABOVE = ("vramlab_course", "vramlab_classroom")

_VRAMLAB = os.path.dirname(os.path.abspath(__file__))

_PYTORCH = ("torch", "functorch", "torchgen")
"""The packages in PyTorch's wheel."""

_INSTALLED = ("site-packages", "dist-packages")

_NOTEBOOK_CELL = re.compile(r"[/\\]ipykernel_\d+[/\\]\w+\.py$|\bipython-input-\d")
"""Source: `get_file_name` in ipykernel/compiler.py, ipykernel 7.4. IPython itself says
`<ipython-input-1-...>`, Google Colab `/tmp/ipython-input-1.py`."""

_TYPED_IN = re.compile(r"<(stdin|input|console|doctest|pyshell|python-input)\b")


@cache
def owner_of(filename: str) -> CodeOwner:
    """Find out whose code a file is. What was asked before is answered from memory.

    Args:
        filename: `co_filename` of a code object, or what a memory history says.
    """
    return _located(filename)[0]


def shown_name(filename: str, folder: str) -> str:
    """Name a file in a report.

    A library's file is named from the library on, the program's from `folder` on, and one of the
    program elsewhere from its outermost package on, or with the folder that it lies in.

    Args:
        filename: as for `owner_of`.
        folder: where the program was started.
    """
    _, name = _located(filename)
    return name or _name_in_program(os.path.normpath(filename), folder)


def is_notebook_cell(filename: str) -> bool:
    """Return whether a file name is that of a notebook's cell."""
    return _NOTEBOOK_CELL.search(filename) is not None


def is_below(filename: str, place: str) -> bool:
    """Return whether a file is `place` or below it; `torchvision` is not below `torch`."""
    return filename == place or bool(_below(filename, place))


@cache
def _located(filename: str) -> tuple[CodeOwner, str]:
    """Whose code a file is, and its name from the library on; empty for a file of the program."""
    if is_notebook_cell(filename):
        return CodeOwner.PROGRAM, "notebook cell"
    if filename.startswith("<") or filename in ("", "??"):
        return _owner_without_file(filename), filename or "??"
    path = os.path.normpath(filename)
    # Links may have been followed on the way to the file, or not.
    paths = dict.fromkeys((path, os.path.realpath(path))) if os.path.isabs(path) else (path,)
    return next(filter(None, map(_in_library, paths)), (CodeOwner.PROGRAM, ""))


def _owner_without_file(name: str) -> CodeOwner:
    if name.startswith("<frozen "):
        return CodeOwner.PYTHON
    return CodeOwner.PROGRAM if _TYPED_IN.match(name) else CodeOwner.NO_FILE


def _in_library(path: str) -> tuple[CodeOwner, str] | None:
    if name := _below_either(path, _VRAMLAB):
        is_program = _first_part(name) in PROGRAM_FOLDERS
        return (CodeOwner.PROGRAM if is_program else CodeOwner.VRAMLAB), f"vramlab/{name}"
    for package in _ABOVE:
        if name := _below_either(path, os.path.join(os.path.dirname(_VRAMLAB), package)):
            return CodeOwner.PROGRAM, f"{package}/{name}"
    if (name := _below_either(path, _folder_of_torch())) and _first_part(name) in _PYTORCH:
        return CodeOwner.PYTORCH, name
    if name := _name_in_packages(path):
        is_torch = _first_part(name) in _PYTORCH
        return (CodeOwner.PYTORCH if is_torch else CodeOwner.PACKAGE), name
    for folder in _folders_of_python():
        if name := _below_either(path, folder):
            return CodeOwner.PYTHON, name
    return None


def _name_in_packages(path: str) -> str:
    """Return a file's name from the installed package on; empty if it is in none."""
    parts = PurePath(path).parts
    folders = [number for number, part in enumerate(parts[:-1]) if part in _INSTALLED]
    if folders:
        name = parts[folders[-1] + 1 :]
        is_in_egg = name[0].endswith(".egg") and len(name) > 1
        return str(PurePath(*name[1:] if is_in_egg else name))
    for folder in (os.path.normpath(entry) for entry in map(str, sys.path) if entry):
        below = _below_either(path, folder)
        if not below:
            continue
        if PurePath(folder).name in _INSTALLED or _first_part(below) in _installed_in(folder):
            return below
    return ""


@cache
def _installed_in(folder: str) -> frozenset[str]:
    """Return the files and folders that pip has put into a folder or a zip file; mostly none."""
    from importlib.metadata import distributions  # takes a while; few programs need it

    records = [distribution.read_text("RECORD") for distribution in distributions(path=[folder])]
    lines = [line for record in records for line in (record or "").splitlines()]
    return frozenset(line.partition(",")[0].partition("/")[0] for line in lines)


@cache
def _folders_of_python() -> tuple[str, ...]:
    """Return the folders of the standard library."""
    return sysconfig.get_path("stdlib"), os.path.dirname(os.__file__)


@cache
def _folder_of_torch() -> str:
    """Return the folder of the package `torch`, without importing it; empty if missing."""
    if torch := sys.modules.get("torch"):
        file = getattr(torch, "__file__", None)
    else:
        spec = importlib.util.find_spec("torch")
        file = spec.origin if spec else None
    return os.path.dirname(os.path.dirname(file)) if file else ""


def _name_in_program(path: str, folder: str) -> str:
    for file, start in ((path, folder), (os.path.realpath(path), os.path.realpath(folder))):
        if name := _below(file, start):
            return name
    top = os.path.dirname(path)
    while os.path.isfile(os.path.join(top, "__init__.py")) and top != os.path.dirname(top):
        top = os.path.dirname(top)
    return _below(path, os.path.dirname(top) if top == os.path.dirname(path) else top) or path


def _first_part(path: str) -> str:
    return PurePath(path).parts[0]


def _below_either(path: str, folder: str) -> str:
    """Return a file's name from a folder on, also through links; empty elsewhere."""
    return next(filter(None, (_below(path, each) for each in _with_and_without_links(folder))), "")


@cache
def _with_and_without_links(folder: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((folder, os.path.realpath(folder)))) if folder else ()


def _below(path: str, folder: str) -> str:
    """Return a file's name from a folder on; empty if it is not below it."""
    start = folder if folder.endswith(os.sep) else folder + os.sep
    return path[len(start) :] if path.startswith(start) else ""
