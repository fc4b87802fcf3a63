"""The table of cuDNN's answers that comes with vramlab, for those who have not its library.

    tables/problems.txt.gz          a convolution a line, as `Convolution.key` writes it
    tables/9.20.0-sm90.txt.gz       cuDNN 9.20.0, capability 9.0: an answer for each, in bytes;
                                    an empty line: it was not asked, or has no engine for it

`python -m benchmarks.cudnn_table` makes them, by asking the library.
"""

from __future__ import annotations

import functools
import gzip
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vramlab.cudnn.problems import Convolution

FOLDER = Path(__file__).with_name("tables")
_PROBLEMS = "problems.txt.gz"


class Answers:
    """Answers of one cuDNN for GPUs of one compute capability."""

    def __init__(self, by_key: Mapping[str, int]) -> None:
        self._by_key = by_key

    def get(self, convolution: Convolution) -> int | None:
        """Look one up, in bytes; None: it is not there."""
        return self._by_key.get(convolution.key)

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
    try:
        lines = _read(folder / name_of(version, capability))
    except FileNotFoundError:
        return Answers({})
    pairs = zip(_read(folder / _PROBLEMS), lines, strict=True)
    return Answers({key: int(line) for key, line in pairs if line})


def name_of(version: int, capability: tuple[int, int]) -> str:
    """Name the file of a cuDNN and a compute capability."""
    major, minor, patch = version // 10000, version // 100 % 100, version % 100
    return f"{major}.{minor}.{patch}-sm{capability[0]}{capability[1]}.txt.gz"


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
    answered: Sequence[int | None],
    folder: Path = FOLDER,
) -> Path:
    """Write the answers to what `add_problems` has given, in that order; their file."""
    path = folder / name_of(version, capability)
    _write(path, ["" if answer is None else str(answer) for answer in answered])
    answers.cache_clear()
    return path


def _read(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().split("\n")


def _write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
