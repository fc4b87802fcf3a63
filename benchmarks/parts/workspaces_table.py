"""The workspaces of cuBLAS and cuBLASLt, from version to version, as a table in Markdown.

It is read off `vramlab.kernels.rule_table.cublas`, which the virtual GPU itself asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from benchmarks.estimates.scores import markdown_table
from vramlab.kernels import CUBLAS, CUBLASLT, KernelContext
from vramlab.kernels.rule_table.cublas import Workspace, workspaces
from vramlab.units import MIB

VERSIONS = ((1, 13), *((2, minor) for minor in range(16)))
"""The releases from the last without a workspace in the caching allocator, to what main has."""

CAPABILITIES = {"before 9.0": (8, 0), "9.0": (9, 0), "10.x and 12.x": (10, 0), "11.x": (11, 0)}
"""Compute capabilities that the workspace's size tells apart, with one of each."""


@dataclass(frozen=True)
class _GPU:
    """A GPU of which only the compute capability matters."""

    compute_capability: tuple[int, int]
    multiprocessors: int = 1
    max_threads_per_multiprocessor: int = 1


def markdown() -> str:
    """One line for each range of releases that do the same."""
    header = (
        "PyTorch",
        *(f"cuBLAS, capability {name}" for name in CAPABILITIES),
        "cuBLASLt (a Linear layer with a bias)",
    )
    rows = []
    for cells, group in groupby(VERSIONS, key=_cells):
        first, *_, last = [*group] * 2
        rows.append((_range(first, last), *cells))
    return markdown_table(header, rows)


def _cells(version: tuple[int, int]) -> tuple[str, ...]:
    contexts = [KernelContext(_GPU(capability), version) for capability in CAPABILITIES.values()]
    return (
        *(" and ".join(map(_size, workspaces(CUBLAS, context))) or "none" for context in contexts),
        " and ".join(map(_named, workspaces(CUBLASLT, contexts[0]))) or "none",
    )


def _range(first: tuple[int, int], last: tuple[int, int]) -> str:
    names = ["{}.{}".format(*version) for version in dict.fromkeys((first, last))]
    return " to ".join(names)


def _size(workspace: Workspace) -> str:
    return f"{workspace.size_bytes / MIB:g} MiB, {'kept' if workspace.kept else 'for the call'}"


def _named(workspace: Workspace) -> str:
    """cuBLAS's own by its name, for its size is in the columns before."""
    if workspace.pool == "cublas":
        return "cuBLAS's"
    return _size(workspace)
