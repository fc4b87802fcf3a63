"""Lessons and exercises as they were installed, and how a learner's folder gets them: in which
language, too.

A learner's folder keeps, in `.vramlab/delivered.json`, what each notebook said when it was put
there. A notebook that still says that is brought up to date. One that the learner has written in
stays as it is; if there is a newer one, that is put beside it. What a notebook says are its cells:
outputs, which every run changes, do not count.
"""

from __future__ import annotations

import hashlib
import json
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
_BESIDE = " (new)"


class UnusableFolder(VramlabError):
    """The course cannot be put into a folder; the message says why."""


@dataclass
class Delivery:
    """What became of the notebooks, by their paths in the folder."""

    added: list[str] = field(default_factory=list)
    """That were not there."""
    updated: list[str] = field(default_factory=list)
    """That nobody had written in."""
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
    """Give the folder that has `lessons/` and `exercises/`: in the package, or the repository.

    Raises:
        UnusableFolder: there is neither.
    """
    package = Path(__file__).parent
    for folder in (package / "material", package.parent):
        if all((folder / name).is_dir() for name in FOLDERS):
            return folder
    raise UnusableFolder(
        f"there are no lessons in {package}: install vramlab from a wheel, or use a checkout"
    )


def deliver(source: Path, folder: Path, language: str | None = None) -> Delivery:
    """Put the course into a learner's folder, or bring it up to date. Nothing of theirs is lost.

    Args:
        source: with `lessons/` and `exercises/`.
        folder: is made if it is not there.
        language: of `languages()`; by default that which the folder has, or else English.

    Raises:
        UnusableFolder: it cannot be written, or it is the source itself.
    """
    if folder.resolve() == source.resolve():
        raise UnusableFolder(f"{folder} is where the lessons come from: choose another folder")
    record_path = folder / _RECORD
    delivery = Delivery()
    language = language or language_of(folder)
    try:
        delivered = _read_record(record_path)
        for path in sorted([*source.glob(FIRST), *source.glob("*/**/*.ipynb")]):
            name = path.relative_to(source).as_posix()
            is_ours = name == FIRST or name.partition("/")[0] in FOLDERS
            if is_ours and ".ipynb_checkpoints" not in path.parts:
                content = in_language(path.read_bytes(), name, language)
                delivered[name] = _deliver_one(content, folder, name, delivered.get(name), delivery)
        choose_language(folder, language)
        record_path.write_text(json.dumps(delivered, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UnusableFolder(f"{folder} cannot be written: {error}") from error
    return delivery


def _deliver_one(
    content: bytes, folder: Path, name: str, delivered: str | None, delivery: Delivery
) -> str:
    """Put one notebook there; answer what it said when it was put there last."""
    there, new = folder / name, says(content)
    if not there.exists():
        delivery.added.append(name)
        _put(content, there)
        return new
    now = says(there.read_bytes())
    if now == new:
        delivery.unchanged += 1
        return new
    if now == delivered:
        delivery.updated.append(name)
        _put(content, there)
        return new
    if new == delivered:
        delivery.kept.append(name)
        return new
    beside = there.with_name(f"{there.stem}{_BESIDE}{there.suffix}")
    _put(content, beside)
    delivery.beside.append(beside.relative_to(folder).as_posix())
    return new


def says(content: bytes) -> str:
    """Give a fingerprint of what the cells of a notebook say; `content` is what its file has."""
    try:
        notebook: Any = json.loads(content)
        cells = [[cell["cell_type"], "".join(cell["source"])] for cell in notebook["cells"]]
    except (ValueError, KeyError, TypeError):  # half written, or no notebook: whatever it is
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def _put(content: bytes, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _read_record(path: Path) -> dict[str, str]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # with none, everything there is the learner's
        return {}
    return {str(name): str(said) for name, said in read.items()} if isinstance(read, dict) else {}
