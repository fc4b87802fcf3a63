"""Operators that are not confirmed against PyTorch's own CUDA code: a table in `unconfirmed.txt`.

The report of `vramlab run` names those that a program has called. The file says how its lines are
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vramlab.gpu.torch_internals import OpOverload
from vramlab.kernels.rule_table.registry import overloads

TABLE = Path(__file__).with_name("unconfirmed.txt")

_LINE = re.compile(r"(?P<name>[\w.]+)\s*(?:=\s*(?P<operators>[\w., ]+?))?\s*:\s*(?P<reason>\S.*)")


@dataclass(frozen=True)
class Unconfirmed:
    """A line of the table."""

    name: str
    """What people call the operator, such as `torch.pdist`."""
    operators: tuple[str, ...]
    """What runs below autograd, such as `aten._pdist_forward`."""
    reason: str
    """What is not confirmed."""


def unconfirmed(func: OpOverload) -> Unconfirmed | None:
    """Return what the table says of an operator; None: it is not in it."""
    return _by_overload().get(func)


def read_table(lines: Iterable[str]) -> list[Unconfirmed]:
    """Read the lines of a table.

    Raises:
        ValueError: a line is none.
    """
    table = []
    for line in lines:
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        found = _LINE.fullmatch(text)
        if found is None:
            raise ValueError(f"invalid line {text!r}: write it like 'torch.pdist: its backward'")
        name = found["name"]
        given = found["operators"] or re.sub(r"^torch\.(?:.*\.)?", "aten.", name)
        operators = tuple(each.strip() for each in given.split(",") if each.strip())
        table.append(Unconfirmed(name, operators, found["reason"]))
    return table


@cache
def _by_overload() -> Mapping[OpOverload, Unconfirmed]:
    table = read_table(TABLE.read_text(encoding="utf-8").splitlines())
    return {
        overload: line
        for line in table
        for operator in line.operators
        for overload in overloads(operator)
    }
