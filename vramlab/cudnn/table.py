"""The table of cuDNN's answers that comes with vramlab, for those who have not its library.

    tables/problems.txt.gz          a convolution a line, as `Convolution.key` writes it
    tables/9.20.0-sm90.txt.gz       cuDNN 9.20.0, capability 9.0: the workspaces of the plans
                                    for each, in bytes, best plan first; an empty line: cuDNN was
                                    not asked, or has no engine for it; "=": the same as in the
                                    table of the cuDNN before, for the same capability

Not every plan is in it (`shortened`), so that the tables stay small.

`python -m benchmarks.cudnn_table` makes them, by asking the library.
"""

from __future__ import annotations

import functools
import gzip
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vramlab.cudnn.problems import Convolution
from vramlab.units import MIB

FOLDER = Path(__file__).with_name("tables")
_PROBLEMS = "problems.txt.gz"
_SAME_ANSWERS = {(12, 1): (12, 0)}
"""Capabilities that share a table: 300 convolutions drawn at random got the same answers from cuDNN
9.20.0 and 9.26.0."""
_SAME = "="

_ALWAYS_THERE_BYTES = 64 * MIB
"""Free memory that a benchmark finds almost always, so that smaller workspaces limit nothing."""


class Answers:
    """Answers of one cuDNN for GPUs of one compute capability."""

    def __init__(self, by_key: Mapping[str, str]) -> None:
        self._by_key = by_key

    def get(self, convolution: Convolution) -> tuple[int, ...] | None:
        """Look up the workspaces of the plans, in bytes; None: the convolution is not there."""
        line = self._by_key.get(convolution.key)
        return None if line is None else tuple(map(int, line.split()))

    def __len__(self) -> int:
        return len(self._by_key)


@functools.cache
def answers(version: int, capability: tuple[int, int], folder: Path = FOLDER) -> Answers:
    """Read the answers of a cuDNN for GPUs of a compute capability; none where none are kept.

    Args:
        version: as `cudnnGetVersion` counts.
        capability: (major, minor).
        folder: where the tables are.
    """
    lines = _lines(version, capability, folder)
    if lines is None:
        return Answers({})
    pairs = zip(_read(folder / _PROBLEMS), lines, strict=True)
    return Answers({key: line for key, line in pairs if line})


def _lines(version: int, capability: tuple[int, int], folder: Path) -> list[str] | None:
    """Read a table, with the lines that stand in older ones; None: it does not exist."""
    try:
        lines = _read(folder / name_of(version, capability))
    except FileNotFoundError:
        return None
    if _SAME not in lines:
        return lines
    older = _older_lines(version, capability, folder)
    return [old if line == _SAME else line for line, old in zip(lines, older, strict=True)]


def _older_lines(version: int, capability: tuple[int, int], folder: Path) -> list[str]:
    """Read the newest table of an older cuDNN for the same capability; empty: there is none."""
    others = (_version_of(path) for path in folder.glob(f"*-{_sm(capability)}.txt.gz"))
    older = max((other for other in others if other < version), default=0)
    return _lines(older, capability, folder) or []


def shortened(sizes_bytes: Sequence[int]) -> tuple[int, ...]:
    """Leave out plans that decide nothing.

    What remains, in order: the first plan; each that is smaller than all before it, which is what
    PyTorch comes to when memory runs out; the largest, and all from 64 MiB on: of them, a benchmark
    allocates the largest that is not larger than the free memory.

    Known limitation: a failed allocation is not counted for each plan that was left out.
    """
    kept: dict[int, None] = {}
    largest_bytes = max(sizes_bytes, default=0)
    for size_bytes in sizes_bytes:
        if size_bytes in (largest_bytes, min((size_bytes, *kept))) or (
            size_bytes >= _ALWAYS_THERE_BYTES
        ):
            kept[size_bytes] = None
    return tuple(kept)


def name_of(version: int, capability: tuple[int, int]) -> str:
    """Name the file of a cuDNN and a compute capability."""
    major, minor, patch = version // 10000, version // 100 % 100, version % 100
    return f"{major}.{minor}.{patch}-{_sm(capability)}.txt.gz"


def _version_of(path: Path) -> int:
    major, minor, patch = map(int, path.name.partition("-")[0].split("."))
    return 10000 * major + 100 * minor + patch


def _sm(capability: tuple[int, int]) -> str:
    major, minor = _SAME_ANSWERS.get(capability, capability)
    return f"sm{major}{minor}"


def problems(folder: Path = FOLDER) -> list[Convolution]:
    """Read the convolutions that the table has."""
    return [Convolution.from_key(key) for key in _read(folder / _PROBLEMS)]


def add_problems(convolutions: Iterable[Convolution], folder: Path = FOLDER) -> list[Convolution]:
    """Add convolutions to those that the tables are about; all of them, in order.

    Answers that are there stay with their convolutions; there are none yet to the new ones.
    """
    try:
        before = _read(folder / _PROBLEMS)
    except FileNotFoundError:
        before = []
    keys = sorted({*before, *(convolution.key for convolution in convolutions)})
    for path in folder.glob("*-sm*.txt.gz"):
        known = dict(zip(before, _read(path), strict=True))
        _write(path, [known.get(key, "") for key in keys])
    _write(folder / _PROBLEMS, keys)
    answers.cache_clear()
    return [Convolution.from_key(key) for key in keys]


def write_answers(
    version: int,
    capability: tuple[int, int],
    answered: Sequence[Sequence[int] | None],
    folder: Path = FOLDER,
) -> Path:
    """Write the answers to what `add_problems` has given, in that order; their file."""
    path = folder / name_of(version, capability)
    lines = [" ".join(map(str, shortened(answer or ()))) for answer in answered]
    older = _older_lines(version, capability, folder) or [""] * len(lines)
    _write(
        path,
        [_SAME if line and line == old else line for line, old in zip(lines, older, strict=True)],
    )
    answers.cache_clear()
    return path


def _read(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().split("\n")


def _write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
