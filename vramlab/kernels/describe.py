"""The table of rules as lines to print: for the command line and the docs."""

from __future__ import annotations

from dataclasses import dataclass

from vramlab.kernels.registry import TABLE, Status


@dataclass(frozen=True)
class Line:
    """One rule in words.

    Attributes:
        ops: the ops it is for.
        takes: what they take beyond their outputs.
        source: where that was read.
        status: how sure it is.
    """

    ops: tuple[str, ...]
    takes: str
    source: str
    status: Status


def describe() -> list[Line]:
    """List every rule, the surest first, then by name."""
    surest_first = list(Status)
    lines = [Line(rule.ops, rule.takes, rule.source, rule.status) for rule in TABLE.rules]
    return sorted(lines, key=lambda line: (surest_first.index(line.status), line.ops))
