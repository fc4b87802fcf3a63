"""Which languages the course is in, and which of them a learner's folder is in."""

from __future__ import annotations

from pathlib import Path

CATALOGUES = Path(__file__).parent
"""With a folder for each language."""

ENGLISH = "en"
"""What the course is written in; it has no catalogue."""

_FILE = Path(".vramlab") / "language"


def languages() -> list[str]:
    """Name the languages of the course, as ISO 639 does: English first."""
    return [ENGLISH, *sorted({path.parent.name for path in CATALOGUES.glob("*/start.po")})]


def language_of(folder: Path) -> str:
    """Return the language of a learner's folder; English by default."""
    try:
        chosen = (folder / _FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return ENGLISH
    return chosen if chosen in languages() else ENGLISH


def choose_language(folder: Path, language: str) -> None:
    """Make it the language of a learner's folder.

    Raises:
        OSError: the folder cannot be written.
    """
    path = folder / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{language}\n", encoding="utf-8")


def language_here() -> str:
    """Tell the language of the learner's folder that the working directory lies in."""
    here = Path.cwd()
    chosen = (folder for folder in (here, *here.parents) if (folder / _FILE).is_file())
    return language_of(next(chosen, here))
