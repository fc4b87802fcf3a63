"""What widgets say to the learner, in the language of the learner's folder."""

from __future__ import annotations

from functools import cache

from vramlab_course.translations.catalogue import read
from vramlab_course.translations.language import CATALOGUES, ENGLISH, language_here

WIDGETS = "widgets.po"
"""The catalogue of what is said in every notebook."""


def say(words: str, **values: object) -> str:
    """Say something in the language of the learner's folder; in English where it is not known.

    Args:
        words: in English, with names in braces where a value comes.
        values: by these names.
    """
    told = spoken(words, language_here())
    return told.format(**values) if values else told


def spoken(words: str, language: str) -> str:
    """Give words in a language; in English where they are not known in it."""
    return words if language == ENGLISH else _words(language).get(words, words)


@cache
def _words(language: str) -> dict[str, str]:
    """What all widgets say, and the predictions of all lessons."""
    folder = CATALOGUES / language
    return {
        entry.text.english: entry.translation
        for path in (folder / WIDGETS, *sorted(folder.glob("lessons/*.po")))
        for entry in read(path)
        if entry.is_fresh
    }
