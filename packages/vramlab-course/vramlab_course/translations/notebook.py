"""A notebook of the course in another language."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from vramlab_course.translations.catalogue import path_of, read
from vramlab_course.translations.language import ENGLISH
from vramlab_course.translations.speech import spoken
from vramlab_course.translations.texts import Notebook, Text

NOT_TRANSLATED = "This notebook has not been translated yet. Below is the English original."
PARTLY_TRANSLATED = (
    "A part of the English of this notebook has changed since it was translated. That part is "
    "shown in English."
)


def is_translated(name: str, language: str) -> bool:
    """Return whether a language has a catalogue for a notebook; for `name` see `path_of`."""
    return path_of(name, language).exists()


def in_language(source: bytes, name: str, language: str) -> bytes:
    """Translate the file of a notebook.

    Args:
        source: what is in the file.
        name: its path in the course, such as 'lessons/01_cuda_context.ipynb'.
        language: English leaves it as it is.

    Returns:
        The file, in nbformat's own order and indentation.
    """
    if language == ENGLISH:
        return source
    translated = translate(json.loads(source), name, language)
    text = json.dumps(translated, indent=1, sort_keys=True, ensure_ascii=False)
    return f"{text}\n".encode()


def translate(notebook: Notebook, name: str, language: str) -> dict[str, Any]:
    """Return a notebook with its Markdown cells in another language; all else stays as it is.

    What is not translated stays English, and a note below the title says so.
    """
    known = _known(name, language)
    cells, missing = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = Text(cell["id"], "".join(cell["source"]))
            missing += text not in known
            cell = {**cell, "source": _lines(known.get(text, text.english))}
        cells.append(cell)
    if missing:
        note = PARTLY_TRANSLATED if is_translated(name, language) else NOT_TRANSLATED
        cells = _with_note(cells, spoken(note, language))
    return {**notebook, "cells": cells}


@cache
def _known(name: str, language: str) -> dict[Text, str]:
    return {
        entry.text: entry.translation for entry in read(path_of(name, language)) if entry.is_fresh
    }


def _with_note(cells: list[dict[str, Any]], note: str) -> list[dict[str, Any]]:
    """Put a note below the heading with which a notebook begins."""
    heading, _, rest = "".join(cells[0]["source"]).partition("\n")
    return [{**cells[0], "source": _lines(f"{heading}\n\n> {note}\n{rest}")}, *cells[1:]]


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
