"""The command line: finds the verbs in `vramlab.commands` and runs the one that was asked for.

A verb is a module there that has `add_parser(subparsers)`; its parser sets `run`, which gets the
parsed arguments and answers the exit status. Verbs import torch only when they run, so that
`vramlab --help` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import vramlab
from vramlab import commands, streams
from vramlab.errors import VramlabError

_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE

_BROUGHT_BY = {
    "record": ("accelerate", "torchinfo", "transformers"),
    "course": ("IPython", "ipywidgets", "matplotlib", "nbformat"),
    "classroom": ("dask", "distributed", "nbconvert", "nbgrader", "psycopg", "sqlalchemy"),
}
"""By extra of the package: what commands import that torch alone does not bring."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; answer its exit status, 2 for what vramlab itself refuses.

    Args:
        argv: the words after `vramlab`; by default those of the command line.
    """
    arguments = parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        streams.flush(sys.stdout)
    except VramlabError as error:
        streams.print_error(f"vramlab: {error}")
        return _EXIT_USAGE
    except ModuleNotFoundError as error:
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
        epilog="To begin with: vramlab run --gpu T4 train.py, vramlab plan gpt2-xl, "
        "vramlab check 01.",
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"vramlab {vramlab.__version__}")
    subparsers = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in pkgutil.iter_modules(commands.__path__):
        verb = importlib.import_module(f"{commands.__name__}.{module.name}")
        verb.add_parser(subparsers)
    return made
