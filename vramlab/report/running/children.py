"""Give the Python programs that a program starts virtual GPUs like its own.

Launchers (torchrun, accelerate, Lightning) start `python train.py` once for each rank. With a real
GPU each of them has it; here each runs by `vramlab run` and reports for itself. A child gets GPUs
where this process's own interpreter runs a script of the program, or a module or script of a
package that needs PyTorch. `python -c`, other interpreters, and tools such as pip run as they are,
and so does everything that is no Python, except `nvidia-smi`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import (
    PackageNotFoundError,
    distribution,
    entry_points,
    packages_distributions,
)
from typing import Any

from vramlab.gpu.core.patching.patches import Patches
from vramlab.report.running.nvidia_smi import smi_command
from vramlab.source_files import CodeOwner, owner_of

_FLAGS = "bBdEiIOPqsSuvx"
"""Short options of python without a value, which may be joined: `-uB`. Source: `python --help`,
Python 3.11 to 3.14; the other ones print something and end."""

_WITH_VALUE = "WX"
"""Short options with one, which is the rest of the word, or the next word."""

_LONG_WITH_VALUE = ("--check-hash-based-pycs",)


class Children:
    """Looks after `subprocess` while the body of the with statement runs.

    Args:
        options: those of `vramlab run` that children get.

    Attributes:
        count: how many were started with virtual GPUs.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self.count = 0
        self._options = options
        self._patches = Patches()

    def __enter__(self) -> Children:
        start = subprocess.Popen.__init__

        def start_attached(process: Any, args: Any, *more: Any, **named: Any) -> None:
            attached = None
            if named.get("executable") is None and not named.get("shell"):
                attached = attached_command(args, self._options, named.get("env"))
            self.count += attached is not None
            start(process, attached or smi_command(args) or args, *more, **named)

        self._patches.set(subprocess.Popen, "__init__", start_attached)
        return self

    def __exit__(self, *exception: object) -> None:
        self._patches.undo()


def attached_command(
    args: Any, options: Sequence[str], environment: Mapping[str, str] | None = None
) -> list[str] | None:
    """Rewrite `python [options] program ...` to run it by vramlab; None for anything else.

    Args:
        args: the words of the command, as `subprocess.Popen` gets them.
        options: those of `vramlab run`.
        environment: of the new process; None: this one's.
    """
    if isinstance(args, str | bytes | os.PathLike):
        return None
    words = [os.fsdecode(word) for word in args]
    if not words or not _is_this_python(words[0], environment):
        return None
    found = _program_in(words[1:])
    if found is None:
        return None
    flags, program = found
    if not _gets_gpus(program):
        return None
    return [words[0], *flags, "-m", "vramlab", "run", *options, *program]


def _is_this_python(word: str, environment: Mapping[str, str] | None) -> bool:
    """Check whether a command is this process's interpreter, under any of its names.

    The interpreter of another virtual environment may be a link to the same file, so the folders
    have to be the same, too.
    """
    if not word or not sys.executable:
        return False
    path = (os.environ if environment is None else environment).get("PATH")
    there = word if os.path.dirname(word) else shutil.which(word, path=path)
    if not there:
        return False
    here = os.path.abspath(sys.executable)
    return _resolved(os.path.abspath(there)) == _resolved(here)


def _resolved(path: str) -> tuple[str, str]:
    return os.path.realpath(path), os.path.realpath(os.path.dirname(path))


def _program_in(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Split what follows `python` into its options, and the program: a script, or -m and a module.

    None where python runs neither. Source: `_PyOS_GetOpt` in Python/getopt.c, CPython 3.11.
    """
    position = 0
    while position < len(words) and (word := words[position]).startswith("-"):
        if word == "--":
            words = [*words[:position], *words[position + 1 :]]
            break
        if word in _LONG_WITH_VALUE:
            position += 2
            continue
        letters = "" if word.startswith("--") else word[1:]
        plain = letters[: len(letters) - len(letters.lstrip(_FLAGS))]
        rest = letters[len(plain) :]
        if rest[:1] == "m":
            flags = [*words[:position], *([f"-{plain}"] if plain else [])]
            module = [rest[1:]] if rest[1:] else []
            return flags, ["-m", *module, *words[position + 1 :]]
        if not letters or (rest and rest[0] not in _WITH_VALUE):
            return None  # -c, standard input, or an option that prints something and ends
        position += 2 if len(rest) == 1 else 1
    return ([*words[:position]], [*words[position:]]) if words[position:] else None


def _gets_gpus(program: Sequence[str]) -> bool:
    """Check whether this is a program of the user's or of a launcher, no tool and no helper."""
    if program[0] != "-m":
        owner = owner_of(os.path.abspath(program[0]))
        if owner is CodeOwner.PROGRAM:
            command = _installed_command(program[0])
            return command is None or _needs_torch(command)
        return owner is CodeOwner.PACKAGE and _needs_torch(_package_of(program[0]))
    if len(program) < 2 or program[1].partition(".")[0] == "vramlab":
        return False
    package = program[1].partition(".")[0]
    if package == "torch":
        return True  # torch.distributed.run
    try:
        # Not `importlib.util.find_spec`: setuptools unloads distutils when it is asked for pip.
        spec = PathFinder.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return True  # of the program, whose folder only the child has in sys.path
    file = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    owner = owner_of(file)
    return owner is CodeOwner.PROGRAM or (owner is CodeOwner.PACKAGE and _needs_torch(package))


def _installed_command(script: str) -> str | None:
    """Name the package behind a command that pip has put beside python; None: it is no such."""
    folder, name = os.path.split(os.path.abspath(script))
    if os.path.realpath(folder) != os.path.realpath(os.path.dirname(sys.executable)):
        return None
    found = entry_points(group="console_scripts", name=name.removesuffix(".exe"))
    return next((each.module.partition(".")[0] for each in found), None)


def _package_of(script: str) -> str:
    """Name the installed package that a file lies in."""
    path = os.path.realpath(script)
    for folder in filter(None, sys.path):
        place = os.path.realpath(folder) + os.sep
        if path.startswith(place):
            return path[len(place) :].partition(os.sep)[0].removesuffix(".py")
    return ""


@cache
def _needs_torch(package: str) -> bool:
    """Check whether an installed package requires PyTorch, itself or by what it requires."""
    if package == "torch":
        return True
    waiting, seen = [*packages_distributions().get(package, ())], set[str]()
    while waiting:
        name = waiting.pop()
        if name == "torch":
            return True
        if name not in seen:
            seen.add(name)
            waiting += _required_by(name)
    return False


def _required_by(name: str) -> Iterator[str]:
    """Yield the names of the distributions that one requires, without its extras."""
    try:
        required = distribution(name).requires or []
    except PackageNotFoundError:
        return
    for line in required:
        if "extra ==" not in line and (found := re.match(r"[\w.-]+", line)):
            yield re.sub(r"[-_.]+", "-", found[0]).lower()
