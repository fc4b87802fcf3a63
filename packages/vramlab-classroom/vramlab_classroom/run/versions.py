"""What decides a verdict besides the answer: versions, sources, seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import vramlab
from vramlab_classroom.judge.task import Exercise
from vramlab_classroom.nbgrader.released_cells import ReleasedCell
from vramlab_classroom.run.sources import digest_of_code
from vramlab_classroom.sandbox.packages import judging_packages

_JUDGING = (
    "vramlab_classroom.run.reading",
    "vramlab_classroom.judge.job_server",
    "vramlab_classroom.judge.judge",
    "vramlab.gpu",
)
"""With what they import: the way from a submitted file to a verdict."""

_SHOWN_DIGITS = 12


@cache
def versions() -> Mapping[str, str]:
    """Return the versions that have to be the same wherever a class is graded.

    vramlab's own comes with a digest of its files: a checkout changes without a new number.
    """
    own = f"{vramlab.__version__} (files {digest(package_files())[:_SHOWN_DIGITS]})"
    return {"vramlab": own, "torch": _version("torch")}


def package_files() -> list[Path]:
    """List the code and data of the packages that judge: all that grading needs of them."""
    return sorted(
        path
        for package in judging_packages().values()
        for path in package.rglob("*")
        if path.suffix in (".py", ".toml", ".json")
    )


def fingerprint(
    exercise: Exercise,
    seed: str,
    released: Sequence[ReleasedCell],
    rights: Mapping[str, str] | None = None,
) -> str:
    """Return a digest of all that judges an exercise: another one, and its verdicts are void."""
    parts = [
        exercise.name,
        digest_of_code([exercise.module, *_JUDGING]),
        vramlab.__version__,
        _version("torch"),
        seed,
        [asdict(cell) for cell in released],
        rights,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def digest(files: Iterable[Path]) -> str:
    """Return the SHA-256 of some files' names and contents."""
    summed = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        summed.update(f"{path.name} {len(content)}\n".encode())
        summed.update(content)
    return summed.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
