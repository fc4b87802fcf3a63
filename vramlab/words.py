"""Say something to the reader: in English, or in the language that a package registers.

    say("Beyond full marks: {spent}.", spent="2 MiB")     sentences, headings
    say_name("activations 24 MiB")                        rows of tables, parts of pictures

A program with a dictionary puts it here: `words.in_readers_language = ...`. Only what is shown to a
person goes this way; files, programs and other machines get English.
"""

from __future__ import annotations

from collections.abc import Callable

in_readers_language: Callable[[str], str] = str
"""Give English words in the reader's language; as they are where it has none for them."""

names_in_readers_language: Callable[[str], str] = str
"""The same for names of things, some of which are names in code: those stay as they are."""


def say(words: str, **values: object) -> str:
    """Say it.

    Args:
        words: in English, with names in braces where a value comes.
        values: by these names.
    """
    told = in_readers_language(words)
    return told.format(**values) if values else told


def say_name(name: str) -> str:
    """Say what something is called: a row of a table, a part of a picture."""
    return names_in_readers_language(name)
