"""What widgets, pictures, tables and checks say, in the language of the learner's folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from vramlab_course.translations.catalogue import read
from vramlab_course.translations.language import CATALOGUES, ENGLISH, language_here

OWN_NAME = "English"
"""What a language calls itself: what it has for this word."""
QUESTION = "the question"

_END = r"(?=[.,:]\s|[.,:]?$)"
"""Where a title ends; the point of a number is none."""

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
    if language == ENGLISH:
        return words
    known = _words(language)
    return known[words] if words in known else next(_filled(words, language), words)


def _filled(words: str, language: str) -> Iterator[str]:
    """Words in which values stand."""
    for pattern, told in _titles(language):
        if found := pattern.fullmatch(words):
            yield told.format(*found.groups())


def title_of(description: str) -> str:
    """Give the title that a picture's description begins with, in the language of the folder.

    Returns:
        '' where that is English, or the title is not known in it.
    """
    language = language_here()
    fitting = [
        told.format(*found.groups())
        for pattern, told in (_titles(language) if language != ENGLISH else ())
        if (found := pattern.match(description))
    ]
    return max(fitting, key=len, default="")


@cache
def _titles(language: str) -> list[tuple[re.Pattern[str], str]]:
    """What may be a title, or say a value: one line, with {} where values come."""
    return [
        (re.compile(re.escape(words).replace(r"\{\}", "(.+?)") + _END), told)
        for words, told in _words(language).items()
        if "\n" not in words and not re.search(r"\{\w+\}", words)
    ]


@cache
def _words(language: str) -> dict[str, str]:
    """What all widgets say, and the notebooks that are translated."""
    folder = CATALOGUES / language
    return {
        entry.text.english: entry.translation
        for path in (folder / WIDGETS, *sorted(folder.glob("*/*.po")))
        for entry in read(path)
        if entry.is_fresh
    }
