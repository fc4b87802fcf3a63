"""The command line: finds the verbs and runs the one that was asked for.

Verbs lie in `vramlab.commands`, and in packages above it that name theirs by an entry point of the
group `vramlab.commands`. Each of these packages says by `AUDIENCE` and `ORDER` who needs its verbs.
A verb is a module there that has `add_parser(subparsers)`; its parser sets `run`, which gets the
parsed arguments and gives the exit status. Verbs import torch only when they run, so that
`vramlab --help` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, entry_points, version
from types import ModuleType
from typing import Any

import vramlab
from vramlab import commands, streams, torch_versions
from vramlab.errors import VramlabError

GROUP = "vramlab.commands"

_BEGIN_WITH = (
    "To begin with: vramlab run --gpu T4 train.py, vramlab plan gpt2-xl, vramlab check 01."
)

_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE

_BROUGHT_BY = {
    "record": ("accelerate", "torchinfo", "transformers"),
    "course": ("IPython", "babel", "ipywidgets", "matplotlib", "nbformat"),
    "lab": ("jupyterlab",),
    "classroom": ("dask", "distributed", "nbconvert", "nbgrader", "psycopg", "sqlalchemy"),
}
"""By extra of the package: what commands import that torch alone does not bring."""

_POSIX = ("fcntl", "grp", "pwd", "resource")
"""Modules of Python's own that Windows lacks."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; answer its exit status, 2 for what vramlab itself refuses.

    Args:
        argv: the words after `vramlab`; by default those of the command line.
    """
    words = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(words)
    arguments.words = words  # for commands that run again elsewhere
    try:
        status: int = arguments.run(arguments)
        streams.flush(sys.stdout)
    except VramlabError as error:
        streams.print_error(f"vramlab: {error}")
        return _EXIT_USAGE
    except ModuleNotFoundError as error:
        if error.name in _POSIX:
            streams.print_error("vramlab: this grades a class, which needs Linux or macOS")
            return _EXIT_USAGE
        if error.name == "torch":
            streams.print_error(
                "vramlab: PyTorch is not installed in this environment, which this command needs: "
                "pip install torch"
            )
            return _EXIT_USAGE
        extras = [extra for extra, names in _BROUGHT_BY.items() if error.name in names]
        if not extras:
            raise
        streams.print_error(
            f"vramlab: {error.name} is not installed, which this command needs: "
            f"pip install 'vramlab[{extras[0]}]'"
        )
        return _EXIT_USAGE
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # Nobody reads on, as behind `| head`. Python would complain again when it ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        stdouts: tuple[Any, ...] = (sys.stdout, sys.__stdout__)
        for stdout in stdouts:  # the first may be a program's own, without a file
            with suppress(Exception):
                os.dup2(nowhere, stdout.fileno())
        return _EXIT_BROKEN_PIPE
    return status


def parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line, one subparser for each verb."""
    made = argparse.ArgumentParser(
        prog="vramlab",
        description="Where GPU memory goes when PyTorch trains a model, on a GPU that need not be "
        "there.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--version", action=_Versions, help="show versions for bug reports and exit")
    verbs = _Verbs(
        made.add_subparsers(
            metavar="COMMAND", required=True, help="one of these:", parser_class=VerbParser
        )
    )
    made.epilog = "\n\n".join([*(verbs.added_by(package) for package in _packages()), _BEGIN_WITH])
    return made


class _Versions(argparse.Action):
    """Prints what a bug report needs: read when it is asked for, and without importing torch."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest=argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *parsed: object) -> None:
        """Print, and exit with status 0."""
        try:
            torch = version("torch")
        except PackageNotFoundError:
            torch = "not installed"
        if installed := torch_versions.parse(torch):
            rules = torch_versions.text(min(installed, torch_versions.NEWEST))
            torch = f"{torch}, with the rules of {rules}"
        print(f"vramlab {vramlab.__version__}")
        print(f"PyTorch {torch} (known: {torch_versions.KNOWN})")
        print(f"{platform.python_implementation()} {platform.python_version()}")
        print(platform.platform())
        parser.exit()


def _packages() -> list[ModuleType]:
    """Return the packages of verbs that are installed, in the order in which they are shown."""
    above = [entry.load() for entry in entry_points(group=GROUP)]
    return [commands, *sorted(above, key=lambda package: int(package.ORDER))]


class VerbParser(argparse.ArgumentParser):
    """Parses the words of a verb.

    Args:
        takes_option: an option whose value may be the name of another program's option, so that
            `--largest --batch-size` is read as `--largest=--batch-size`.
        options: of argparse's own.
    """

    def __init__(self, *, takes_option: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._takes_option = takes_option

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, with such a name joined to its option."""
        words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(self._joined(words), namespace)

    def _joined(self, words: list[str]) -> list[str]:
        position = 0
        while position + 1 < len(words) and words[position].startswith("--"):  # the verb's own
            name, following = words[position : position + 2]
            if name == self._takes_option and following.startswith("-"):
                return [*words[:position], f"{name}={following}", *words[position + 2 :]]
            position += 1 if "=" in name else 2
        return words


class _Verbs:
    """Stands before argparse's subparsers, whose help knows no groups: it keeps what each says."""

    def __init__(self, subparsers: argparse._SubParsersAction[VerbParser]) -> None:
        self._subparsers = subparsers
        self._added: list[tuple[str, str]] = []

    def add_parser(self, name: str, *, help: str, **options: Any) -> argparse.ArgumentParser:
        """Add a verb as argparse does."""
        self._added.append((name, help))
        return self._subparsers.add_parser(name, **options)

    def added_by(self, package: ModuleType) -> str:
        """Add the verbs of a package, and give a paragraph for the help about them."""
        self._added = []
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}").add_parser(self)
        width = max(map(len, self._subparsers.choices))
        lines = [f"  {name:{width}}  {help}" for name, help in self._added]
        return "\n".join([f"{package.AUDIENCE}:", *lines])
