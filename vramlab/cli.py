"""The command line: finds the verbs and runs the requested one.

Verbs live in `vramlab.commands`, and in other packages that register themselves under the entry
point group `vramlab.commands`. `AUDIENCE` and `ORDER` of such a package say who its verbs are for
and where the help lists them. A verb is a module with `add_parser(subparsers)`; its parser sets
`run`, which takes the parsed arguments and returns the exit status. Verbs import torch only when
they run, so `vramlab --help` is fast.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import platform
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, entry_points, version
from types import ModuleType
from typing import Any, NoReturn

import vramlab
from vramlab import commands, streams, torch_versions
from vramlab.errors import VramlabError, did_you_mean

GROUP = "vramlab.commands"

_FIRST_EXAMPLES = """examples:
  vramlab run --gpu T4 train.py      run your script on a virtual T4
  vramlab plan gpt2-xl --batch 8     check whether a training setup fits
  vramlab COMMAND --help             show a command's options and examples"""

_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE

_MODULES_OF_EXTRAS = {
    "record": ("accelerate", "torchinfo", "transformers"),
    "course": ("IPython", "babel", "ipywidgets", "matplotlib", "nbformat"),
    "lab": ("jupyterlab",),
    "classroom": ("dask", "distributed", "nbconvert", "nbgrader", "psycopg", "sqlalchemy"),
}
"""For each extra of the package: modules that commands import and torch does not install."""

_POSIX = ("fcntl", "grp", "pwd", "resource")
"""Modules of the standard library that Windows lacks."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 2 for errors that vramlab reports itself.

    Args:
        argv: Arguments after `vramlab`; defaults to those of the process.
    """
    words = sys.argv[1:] if argv is None else argv
    try:
        arguments = parser().parse_args(words)
        arguments.words = words  # for commands that run again elsewhere
        status: int = arguments.run(arguments)
        streams.flush(sys.stdout)
    except VramlabError as error:
        streams.print_error(f"vramlab: {error}")
        return _EXIT_USAGE
    except ModuleNotFoundError as error:
        if error.name in _POSIX:
            streams.print_error("vramlab: grading needs Linux or macOS (on Windows, use WSL 2)")
            return _EXIT_USAGE
        if error.name == "torch":
            streams.print_error(
                "vramlab: this command needs PyTorch, which is not installed: pip install torch"
            )
            return _EXIT_USAGE
        extras = [extra for extra, names in _MODULES_OF_EXTRAS.items() if error.name in names]
        if not extras:
            raise
        streams.print_error(
            f"vramlab: this command needs {error.name}, which is not installed: "
            f"pip install 'vramlab[{extras[0]}]'"
        )
        return _EXIT_USAGE
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe, as `| head` does. Without this, Python complains at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        stdouts: tuple[Any, ...] = (sys.stdout, sys.__stdout__)
        for stdout in stdouts:  # the user's program may have replaced the first one
            with suppress(Exception):
                os.dup2(nowhere, stdout.fileno())
        return _EXIT_BROKEN_PIPE
    return status


def parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line, with one subparser per verb."""
    made = VerbParser(
        prog="vramlab",
        description="See where GPU memory goes when PyTorch trains a model. No GPU required.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "--version", action=_Versions, help="print version information for bug reports and exit"
    )
    verbs = _Verbs(
        made.add_subparsers(
            metavar="COMMAND",
            required=True,
            help="one of the commands below",
            parser_class=VerbParser,
        )
    )
    made.epilog = "\n\n".join(
        [*(verbs.added_by(package) for package in _packages()), _FIRST_EXAMPLES]
    )
    return made


class _Versions(argparse.Action):
    """Prints the versions that a bug report needs, without importing torch."""

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
            torch = f"{torch}, simulated with the rules of {rules}"
        print(f"vramlab {vramlab.__version__}")
        print(f"PyTorch {torch} (supported: {torch_versions.KNOWN})")
        print(f"{platform.python_implementation()} {platform.python_version()}")
        print(platform.platform())
        parser.exit()


def _packages() -> list[ModuleType]:
    """Return the installed packages of verbs, in the order in which the help lists them."""
    above = [entry.load() for entry in entry_points(group=GROUP)]
    return [commands, *sorted(above, key=lambda package: int(package.ORDER))]


_CHOICES = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")


def _with_nearest(found: re.Match[str]) -> str:
    """Name the nearest choice instead of all of them, if one is near."""
    hint = did_you_mean(found[1], re.findall(r"[\w.+-]+", found[2]), 1)
    return f"invalid choice: '{found[1]}'; {hint}" if hint else found[0]


class VerbParser(argparse.ArgumentParser):
    """Parses the arguments of a verb.

    Args:
        examples: Command lines that the help shows at its end.
        takes_option: An option whose value may be the name of another program's option, so that
            `--largest --batch-size` is read as `--largest=--batch-size`.
        passes_on: A positional argument that receives everything after `--`.
        options: Passed on to argparse.
    """

    def __init__(
        self,
        *,
        examples: Sequence[str] = (),
        takes_option: str | None = None,
        passes_on: str | None = None,
        **options: Any,
    ) -> None:
        if examples:
            title = "example:" if len(examples) == 1 else "examples:"
            options["epilog"] = "\n  ".join([title, *examples])
        super().__init__(**{"formatter_class": _HelpFormatter, **options})
        self._takes_option = takes_option
        self._passes_on = passes_on

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse like argparse, except for the constructor's arguments; refuse unknown options."""
        words = sys.argv[1:] if args is None else list(args)
        rest: list[str] = []
        if self._passes_on and "--" in words:
            # argparse fills all positionals at the first one, so it refuses `FOLDER --teach -- X`.
            words, rest = words[: words.index("--")], words[words.index("--") + 1 :]
        found, unknown = super().parse_known_args(self._joined(words), namespace)
        if unknown:  # argparse would report them in the name of the whole command line
            hint = did_you_mean(unknown[0], self._option_string_actions, 1)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint and f'; {hint}'}")
        if self._passes_on:
            setattr(found, self._passes_on, [*getattr(found, self._passes_on), *rest])
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and one line, because a usage of twenty lines hides the message."""
        message = _CHOICES.sub(_with_nearest, message)
        self.exit(_EXIT_USAGE, f"{self.prog}: error: {message} (see `{self.prog} --help`)\n")

    def _joined(self, words: list[str]) -> list[str]:
        position = 0
        while position + 1 < len(words) and words[position].startswith("--"):  # the verb's own
            name, following = words[position : position + 2]
            if name == self._takes_option and following.startswith("-"):
                return [*words[:position], f"{name}={following}", *words[position + 2 :]]
            position += 1 if "=" in name else 2
        return words


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps paragraphs like argparse, and leaves text with line breaks, the examples, as is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class _Verbs:
    """Wraps argparse's subparsers and records each verb's help, because argparse has no groups."""

    def __init__(self, subparsers: argparse._SubParsersAction[VerbParser]) -> None:
        self._subparsers = subparsers
        self._added: list[tuple[str, str]] = []

    def add_parser(self, name: str, *, help: str, **options: Any) -> argparse.ArgumentParser:
        """Add a verb like argparse's `add_parser`."""
        self._added.append((name, help))
        return self._subparsers.add_parser(name, **options)

    def added_by(self, package: ModuleType) -> str:
        """Add the verbs of a package and return the help's paragraph about them."""
        self._added = []
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}").add_parser(self)
        width = max(map(len, self._subparsers.choices))
        lines = [f"  {name:{width}}  {help}" for name, help in self._added]
        return "\n".join([f"{package.AUDIENCE}:", *lines])
