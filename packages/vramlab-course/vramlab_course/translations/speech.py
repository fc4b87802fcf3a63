"""What widgets, pictures, tables and checks say, in the language of the learner's folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
LABELS = "labels.po"
"""The catalogue of what rows of tables, parts of pictures and verdicts are called."""

_SIZE = re.compile(r"(?s)(.*[^\s:])(:? )([-+~]?\d[\d.,]* ?(?:B|[KMG]iB|bytes|%|x)(?: \(.*\))?)")
"""A name, and the size of what it names."""
_ONE_WORD = re.compile(r"[a-z_]\w*")
"""Which may be a name in code."""

untold: set[str] = set()
"""Names that no dictionary had, for who keeps the catalogues."""


def say(words: str, **values: object) -> str:
    """Say something in the language of the learner's folder; in English where it is not known.

    Args:
        words: in English, with names in braces where a value comes.
        values: by these names.
    """
    told = spoken(words, language_here())
    return told.format(**values) if values else told


def spoken(words: str, language: str) -> str:
    """Return words in a language; in English where they are not known in it."""
    return words if language == ENGLISH else _dictionary(language).tell(words)


def say_name(name: str) -> str:
    """Say what something in a table or picture is called, in the language of the folder.

    A name may have lines, and a size behind it. One word that stands in a notebook only stays as it
    is: in a picture of blocks, 'kept' is a tensor.
    """
    language = language_here()
    if language == ENGLISH:
        return name
    told = _dictionary_of_names(language).tell(name)
    if told == name and re.search("[a-z]{3}", name):
        untold.add(name)
    return told


def title_of(description: str) -> str:
    """Return the title that a picture's description begins with, in the language of the folder.

    Returns:
        '' where that is English, or the title is not known in it.
    """
    language = language_here()
    return _dictionary(language).title_of(description) if language != ENGLISH else ""


class Dictionary:
    """What a language has for English words.

    Args:
        words: by the English, with {} where values come.
    """

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = words
        lines = (
            (english, told)
            for english, told in words.items()
            if "\n" not in english and not re.search(r"\{\w+\}", english)
        )
        self._titles = [
            (re.compile(re.escape(english).replace(r"\{\}", "(.+?)") + _END), told)
            for english, told in lines
        ]
        self._with_values = [each for each in self._titles if each[0].groups]
        self._told: dict[str, str] = {}

    def tell(self, words: str) -> str:
        """Give words as a whole, line by line, or before and behind a size or a colon."""
        if words not in self._told:
            self._told[words] = self._found(words)
        return self._told[words]

    def _found(self, words: str) -> str:
        if words in self._words:
            return self._words[words]
        if "\n" in words:
            in_one = words.replace("\n", " ")  # a long name that a picture has wrapped
            told = self._words.get(in_one, "")
            return told or "\n".join(map(self.tell, words.split("\n")))
        for pattern, told in self._with_values:
            if found := pattern.fullmatch(words):
                return told.format(*map(self.tell, found.groups()))
        if sized := _SIZE.fullmatch(words):
            name, gap, size = sized.groups()
            return f"{self.tell(name)}{gap}{size}"
        kind, _, which = words.partition(": ")
        return f"{self.tell(kind)}: {self.tell(which)}" if which else words

    def title_of(self, description: str) -> str:
        """Return the longest title that a description begins with; '' if none is known."""
        fitting = [
            told.format(*map(self.tell, found.groups()))
            for pattern, told in self._titles
            if (found := pattern.match(description))
        ]
        return max(fitting, key=len, default="")


@cache
def _dictionary(language: str) -> Dictionary:
    """All that is said in notebooks: by all widgets, and by the notebooks that are translated."""
    return Dictionary(_everywhere(language) | _in_notebooks(language))


@cache
def _dictionary_of_names(language: str) -> Dictionary:
    several = {
        english: told
        for english, told in _in_notebooks(language).items()
        if not _ONE_WORD.fullmatch(english)
    }
    return Dictionary(several | _everywhere(language))


def _everywhere(language: str) -> dict[str, str]:
    folder = CATALOGUES / language
    return {
        entry.text.english: entry.translation
        for name in (LABELS, WIDGETS)
        for entry in read(folder / name)
        if entry.is_fresh
    }


@cache
def _in_notebooks(language: str) -> dict[str, str]:
    return {
        entry.text.english: entry.translation
        for path in sorted((CATALOGUES / language).glob("*/*.po"))
        for entry in read(path)
        if entry.is_fresh
    }
