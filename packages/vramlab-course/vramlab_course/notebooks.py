"""Copy the installed lessons and exercises to a learner's folder, in its language.

A learner's folder records, in `.vramlab/delivered.json`, what each notebook contained when it was
written there. A notebook that still has those contents is updated. A notebook that the learner has
edited or made read-only is never written to; a newer version gets a name of its own beside it, and
that file is the learner's too from their first edit on. Contents are the cells: outputs, which
every run changes, do not count.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vramlab.errors import VramlabError
from vramlab_course.translations.language import choose_language, language_of
from vramlab_course.translations.notebook import in_language

FOLDERS = ("lessons", "exercises")
FIRST = "start.ipynb"
"""The start page: which lessons there are, and what the learner has done of them."""

_RECORD = Path(".vramlab") / "delivered.json"


class UnusableFolder(VramlabError):
    """The course cannot be put into a folder; the message says why."""


@dataclass
class Delivery:
    """What became of the notebooks, by their paths in the folder."""

    added: list[str] = field(default_factory=list)
    """That were not there."""
    updated: list[str] = field(default_factory=list)
    """Without changes by the learner."""
    kept: list[str] = field(default_factory=list)
    """That the learner has written in, and that have not changed since."""
    beside: list[str] = field(default_factory=list)
    """Newer ones, beside what the learner has written in."""
    unchanged: int = 0
    """How many others there are."""

    def lines(self) -> Iterator[str]:
        """Say it."""
        if self.added:
            yield f"{len(self.added)} notebooks were added."
        if self.updated:
            yield f"{len(self.updated)} notebooks were brought up to date."
        if self.kept:
            yield f"{len(self.kept)} notebooks that you have written in stay as they are."
        for name in self.beside:
            yield f"You have written in a notebook that has a newer version: {name}"


def installed_notebooks() -> Path:
    """Return the folder that has `lessons/` and `exercises/`: in the package, or the repository.

    Raises:
        UnusableFolder: there is neither.
    """
    package = Path(__file__).parent
    for folder in (package / "material", *package.parents[1:4]):
        if all((folder / name).is_dir() for name in FOLDERS):
            return folder
    raise UnusableFolder(
        f"there are no lessons in {package}: install vramlab from a wheel, or use a checkout"
    )


def deliver(source: Path, folder: Path, language: str | None = None) -> Delivery:
    """Put the course into a learner's folder, or bring it up to date. Nothing of theirs is lost.

    Only files that are exactly as they were delivered are overwritten.

    Args:
        source: with `lessons/` and `exercises/`.
        folder: is made if it is not there.
        language: of `languages()`; by default that which the folder has, or else English.

    Raises:
        UnusableFolder: it cannot be written, or it is the source itself.
    """
    if folder.resolve() == source.resolve():
        raise UnusableFolder(f"{folder} is where the lessons come from: choose another folder")
    if folder.exists() and not folder.is_dir():
        raise UnusableFolder(f"{folder} is a file: choose a folder for the course")
    record_path = folder / _RECORD
    delivery = Delivery()
    language = language or language_of(folder)
    try:
        delivered = _read_record(record_path)
        try:
            for path in sorted([*source.glob(FIRST), *source.glob("*/**/*.ipynb")]):
                name = path.relative_to(source).as_posix()
                is_ours = name == FIRST or name.partition("/")[0] in FOLDERS
                if is_ours and ".ipynb_checkpoints" not in path.parts:
                    content = in_language(path.read_bytes(), name, language)
                    _deliver_one(content, folder, name, delivered, delivery)
        finally:  # also of a delivery that stopped half-way: what it has written is not theirs
            choose_language(folder, language)
            record_path.write_text(json.dumps(delivered, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UnusableFolder(f"{folder} cannot be written: {error}") from error
    return delivery


def _deliver_one(
    content: bytes, folder: Path, name: str, delivered: dict[str, str], delivery: Delivery
) -> None:
    """Write one notebook there; note in `delivered` what each file got."""
    new, last = says(content), delivered.get(name)
    if not (folder / name).exists():
        delivery.added.append(name)
        _put(content, folder, name, delivered)
    elif says((folder / name).read_bytes()) == new:
        delivery.unchanged += 1
    elif _is_as_delivered(folder, name, delivered):
        delivery.updated.append(name)
        _put(content, folder, name, delivered)
    elif new == last:
        delivery.kept.append(name)
    else:
        beside = next(
            each
            for each in _names_beside(name)
            if not (folder / each).exists() or _is_as_delivered(folder, each, delivered)
        )
        delivery.beside.append(beside)
        _put(content, folder, beside, delivered)
    delivered[name] = new


def _names_beside(name: str) -> Iterator[str]:
    """Name files for a newer version: `01 (new).ipynb`, `01 (new 2).ipynb` and so on."""
    stem = name.removesuffix(".ipynb")
    yield f"{stem} (new).ipynb"
    for number in itertools.count(2):
        yield f"{stem} (new {number}).ipynb"


def _is_as_delivered(folder: Path, name: str, delivered: dict[str, str]) -> bool:
    """Return whether a file still has what was written there, and may be written to."""
    path = folder / name
    is_writable = bool(path.stat().st_mode & stat.S_IWUSR)
    return is_writable and says(path.read_bytes()) == delivered.get(name)


def says(content: bytes) -> str:
    """Return a fingerprint of what the cells of a notebook say; `content` is what its file has."""
    try:
        notebook: Any = json.loads(content)
        cells = [[cell["cell_type"], "".join(cell["source"])] for cell in notebook["cells"]]
    except (ValueError, KeyError, TypeError):  # half written, or no notebook: whatever it is
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def _put(content: bytes, folder: Path, name: str, delivered: dict[str, str]) -> None:
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    delivered[name] = says(content)


def _read_record(path: Path) -> dict[str, str]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # with none, everything there is the learner's
        return {}
    return {str(name): str(said) for name, said in read.items()} if isinstance(read, dict) else {}
