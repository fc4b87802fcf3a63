"""`vramlab rules`: memory that CUDA kernels allocate inside an op, and how vramlab models an op.

$ vramlab rules
$ vramlab rules mm layer_norm
$ vramlab rules aten.index
$ vramlab rules --markdown
$ vramlab rules --json
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from vramlab.errors import did_you_mean
from vramlab.progress import working
from vramlab.streams import print_error

if TYPE_CHECKING:
    from vramlab.gpu.ops.describe import Description
    from vramlab.gpu.torch_internals import OpOverload
    from vramlab.kernels import Rule

_EXIT_OK = 0
_EXIT_USAGE = 2

_WIDTH = 100


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `rules` to the command line."""
    parser = subparsers.add_parser(
        "rules",
        help="list the temporary memory that CUDA kernels allocate, with sources",
        description="List the rules for memory that CUDA kernels allocate inside an op, beyond its "
        "outputs: how much, the source, and whether a real GPU or a published number confirms it. "
        "For a full op name such as aten.index, show everything vramlab models about the op.",
        examples=("vramlab rules mm layer_norm", "vramlab rules aten.index"),
    )
    parser.add_argument(
        "op",
        nargs="*",
        help="part of an op name such as mm, to list its rules; or a full name such as aten.index "
        "or aten.index.Tensor, to show its whole record (default: all rules)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    form.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print rules and records; return the exit status: 2 for an op that PyTorch lacks, else 0."""
    with working("reading the rules"):
        from vramlab.kernels import TABLE

        lines = TABLE.surest_first()
    words = [name for name in arguments.op if "." not in name]
    if arguments.op:
        lines = [line for line in lines if _is_about(line, words)]
    named = [name for name in arguments.op if "." in name or not lines]
    records = {name: _records(name) for name in named}
    if lacking := [name for name, found in records.items() if not found]:
        print_error("\n".join(f"vramlab: {_unknown(name)}" for name in lacking))
    shown = [record for found in records.values() for record in found]
    if arguments.json:
        print(json.dumps([*shown, *map(as_dict, lines)], indent=2))
    elif shown and not arguments.markdown:
        print("\n".join(line for record in shown for line in record_text(record)))
    if lines and not arguments.json:
        print(markdown(lines) if arguments.markdown else "\n".join([*text(lines), summary(lines)]))
    return _EXIT_USAGE if lacking else _EXIT_OK


def as_dict(line: Rule) -> dict[str, Any]:
    """Return a rule in JSON types."""
    return {
        "ops": list(line.ops),
        "takes": line.takes,
        "source": line.source,
        "status": line.status.name.lower(),
    }


def text(lines: Iterable[Rule]) -> Iterable[str]:
    """Return a paragraph for each rule, under a heading for each status."""
    for status, group in groupby(lines, key=lambda line: line.status):
        yield f"{status.value}:"
        for line in group:
            yield ""
            yield from _wrapped(", ".join(_short(line.ops)), "  ", "    ")
            yield from _wrapped(line.takes, "    memory  ", " " * 12)
            yield from _wrapped(line.source, "    source  ", " " * 12)
        yield ""


def markdown(lines: Iterable[Rule]) -> str:
    """Return a Markdown table with one line per rule."""
    rows = [
        (", ".join(f"`{name}`" for name in _short(line.ops)), line.takes, line.source, word)
        for line in lines
        for word in [line.status.value]
    ]
    table = [("op", "takes beyond its outputs", "source", "status"), ("---",) * 4, *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in table
    )


def summary(lines: Iterable[Rule]) -> str:
    """Return the number of rules per status, in a line."""
    counts = Counter(line.status for line in lines)
    parts = [f"{count} {status.value}" for status, count in counts.items()]
    return f"{counts.total()} rules: " + "; ".join(parts)


def _is_about(line: Rule, words: Sequence[str]) -> bool:
    return any(word in op for op in line.ops for word in words)


def _short(ops: Sequence[str]) -> list[str]:
    """Join overloads of one op: aten.mm.default and aten.mm.out become aten.mm(default, out).

    A name without an overload stands for all overloads and is not changed.
    """
    overloads: dict[str, list[str]] = {}
    for op in ops:
        namespace, name, *overload = op.split(".")
        overloads.setdefault(f"{namespace}.{name}", []).extend(overload)
    return [f"{op}({', '.join(names)})" if names else op for op, names in overloads.items()]


def _wrapped(words: str, first: str, others: str) -> list[str]:
    return textwrap.wrap(words, _WIDTH, initial_indent=first, subsequent_indent=others)


def _records(name: str) -> list[Description]:
    """Describe the overloads of an op; an empty list for an unknown op."""
    from vramlab.gpu.ops.describe import describe
    from vramlab.kernels.rule_table.registry import overloads

    full = name if "." in name else f"aten.{name}"
    return [describe(overload) for overload in overloads(full) if _is_called(overload)]


def _unknown(name: str) -> str:
    from vramlab.gpu.torch_internals import dispatch_get_all_op_names

    known = {op.partition(".")[0].replace("::", ".") for op in dispatch_get_all_op_names()}
    hint = did_you_mean(name if "." in name else f"aten.{name}", known)
    hint = hint and f"{hint} "
    return f"unknown op {name!r}: {hint}`vramlab rules` lists all ops that have a rule"


def _is_called(func: OpOverload) -> bool:
    """Check whether programs can call an overload; a few exist only in TorchScript."""
    from vramlab.gpu.torch_internals import dispatch_get_all_op_names

    return func.name() in dispatch_get_all_op_names()


def record_text(record: Description) -> Iterable[str]:
    """Return a paragraph for an op, with a line for each part of its record."""
    parts = dict(record)
    yield f"{parts.pop('op')}: {parts.pop('knowledge')}"
    for heading, content in parts.items():
        yield from _wrapped(content or "-", f"    {heading:<13}", " " * 17)
    yield ""
