"""Entries of a recording, by name: context, allocator settings, rules, experiments, workloads."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from vramlab.errors import VramlabError

CONTEXT = "context"
ALLOCATOR = "allocator/"
RULE = "rule/"
EXPERIMENT = "experiment/"
ZOO = "zoo/"


class NothingToDoError(VramlabError):
    """A pattern fits no entry."""


def all_entries() -> tuple[str, ...]:
    """Return the ids of all entries, in the order in which they are recorded."""
    from vramlab import zoo
    from vramlab.kernels import rules_called
    from vramlab.recordings import experiments
    from vramlab.recordings.allocator_programs import PROGRAMS

    return (
        CONTEXT,
        *(ALLOCATOR + name for name in PROGRAMS),
        *(RULE + name for name in rules_called()),
        *(EXPERIMENT + name for name in experiments.names()),
        *(ZOO + workload.id for workload in zoo.WORKLOADS),
    )


def select(entries: Sequence[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Select the entries that a pattern fits: all without one.

    Args:
        entries: ids.
        patterns: an id, a part of one, or with wildcards as in file names.

    Raises:
        NothingToDoError: a pattern fits none.
    """
    if not patterns:
        return tuple(entries)
    fitting: set[str] = set()
    for pattern in patterns:
        glob = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
        found = {entry for entry in entries if fnmatch.fnmatchcase(entry, glob)}
        found = {pattern} if pattern in found else found
        if not found:
            raise NothingToDoError(
                f"no entry fits {pattern!r}; `vramlab record --list` lists them all"
            )
        fitting |= found
    return tuple(entry for entry in entries if entry in fitting)


def trace_group(entry: str) -> str:
    """Name the one of a recording's trace files that has an entry's trace."""
    if entry.startswith(ALLOCATOR):
        return "allocator"
    if entry.startswith(RULE):
        return "rules"
    if not entry.startswith(ZOO):
        return "experiments"
    from vramlab import zoo
    from vramlab.zoo.subjects import SUBJECTS

    return SUBJECTS[zoo.find(entry.removeprefix(ZOO)).model].family
