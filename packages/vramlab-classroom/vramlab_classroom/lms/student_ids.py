"""Makes ids for students out of names that come from elsewhere.

An id is a folder's name in nbgrader, a part of patterns (`*`, `[`) and, in its exchange, of names
that are split at `+`. So it has letters and digits of any script, and `.`, `_`, `-`, `@` between
them; none of them hides the folder, leaves it, or looks like an option on a command line.
"""

from __future__ import annotations

import re
import unicodedata

MAX_CHARACTERS = 60
"""Four bytes each at most, so that no file system refuses the folder (255 bytes)."""

_SIGNS = "._-@"
_MARKS = ("Mn", "Mc")
"""Unicode's categories of what is written with a letter: accents, vowels of many scripts."""


def student_id(name: str) -> str:
    """Make an id of a name: `Ada  Lovelace` becomes `ada.lovelace`.

    The same name always gives the same id, whatever its capitals and however its accents are
    encoded. The result is empty if nothing of the name can be kept.
    """
    return _kept(unicodedata.normalize("NFKC", name).casefold())


def is_safe_id(name: str) -> bool:
    """Return whether a name can be a student's id as it is."""
    return bool(name) and name == _kept(name)


def _kept(name: str) -> str:
    """Replace what an id cannot have by full stops, and take none, or a sign, at the ends."""
    normal = unicodedata.normalize("NFC", name)
    text = "".join(each if _is_allowed(each) else "." for each in normal)
    return re.sub(r"\.{2,}", ".", text).strip(_SIGNS)[:MAX_CHARACTERS].strip(_SIGNS)


def _is_allowed(character: str) -> bool:
    return character.isalnum() or character in _SIGNS or unicodedata.category(character) in _MARKS
