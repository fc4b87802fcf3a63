"""The entries of a PO file, read and written by Babel."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from vramlab_course.translations.language import CATALOGUES
from vramlab_course.translations.texts import Text

_HEADER = """\
# {about}
msgid ""
msgstr ""
"Language: {language}\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"

"""
_STALE = "fuzzy"
"""What gettext calls an entry whose source has changed."""


@dataclass(frozen=True)
class CatalogueEntry:
    """One text, and what a language says for it.

    Attributes:
        text: the English.
        translation: '' if missing.
        is_stale: whether the English has changed since it was translated.
    """

    text: Text
    translation: str = ""
    is_stale: bool = False

    @property
    def is_fresh(self) -> bool:
        """Whether it can be shown: it is translated, and from this English."""
        return bool(self.translation) and not self.is_stale


def path_of(notebook: str, language: str) -> Path:
    """Return the PO file of a notebook.

    Args:
        notebook: its path in the course, such as 'lessons/01_cuda_context.ipynb'.
        language: such as 'zh'.
    """
    name = Path(notebook)
    folder = name.parts[0] if len(name.parts) > 1 else ""
    return CATALOGUES / language / folder / f"{name.stem}.po"


def read(path: Path) -> list[CatalogueEntry]:
    """Read the entries of a PO file, in their order; none if the file is missing.

    Raises:
        ModuleNotFoundError: Babel is not installed.
        babel.messages.pofile.PoFileError: the file is no PO file.
    """
    from babel.messages.pofile import read_po

    if not path.exists():
        return []
    with path.open("rb") as file:
        catalogue = read_po(file, abort_invalid=True)
    return [
        CatalogueEntry(
            Text(message.context or "", str(message.id)),
            str(message.string or ""),
            message.fuzzy,
        )
        for message in catalogue
        if message.id
    ]


def write(path: Path, entries: list[CatalogueEntry], about: str, language: str) -> None:
    """Write a PO file: a line of it for each line of a text, so that changes read well."""
    from babel.messages.catalog import Catalog
    from babel.messages.pofile import write_po

    catalogue = Catalog()
    for entry in entries:
        message = catalogue.add(
            entry.text.english,
            entry.translation,
            context=entry.text.place or None,
        )
        # Babel takes '30 % of' for a format, and translators' editors would then complain.
        message.flags = {_STALE} if entry.is_stale else set()
    file = io.BytesIO()
    write_po(file, catalogue, width=0, omit_header=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = _HEADER.format(about=about, language=language)
    path.write_bytes(head.encode() + file.getvalue().rstrip(b"\n") + b"\n")


def brought_up_to_date(entries: list[CatalogueEntry], texts: list[Text]) -> list[CatalogueEntry]:
    """Return the entries that a notebook's texts need now, in the order of the texts.

    What has changed gets the translation of what stood there, marked as stale.
    """
    exact = {entry.text: entry for entry in entries}
    left = [entry for entry in entries if entry.text not in set(texts)]
    found = []
    for text in texts:
        entry = exact.get(text)
        if entry is None:
            old = next((each for each in left if each.text.place == text.place), None)
            entry = CatalogueEntry(text)
            if old is not None:
                left.remove(old)
                entry = CatalogueEntry(text, old.translation, is_stale=bool(old.translation))
        found.append(entry)
    return found
