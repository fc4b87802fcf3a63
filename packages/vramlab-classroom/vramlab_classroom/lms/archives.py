"""Lists and reads the notebooks in a folder or a zip from elsewhere, without trusting it.

Nothing is unpacked: names are only looked at, so none of them can lead out of a folder, and a file
is read into memory up to a limit, whatever size it claims to have. Links are not followed.
"""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath

from vramlab.errors import VramlabError
from vramlab_classroom.run.submissions import MAX_NOTEBOOK_BYTES, TIMESTAMP, Refused, read_plainly

MAX_ENTRIES = 200_000
"""In a zip or folder. A class of 1,000 with 23 exercises submits 23,000 notebooks."""

_LIMIT = MAX_NOTEBOOK_BYTES
_NOTEBOOK = ".ipynb"
_ARCHIVES = (".zip", ".gz", ".tar", ".7z", ".rar")
_NOT_SUBMITTED = frozenset({"__MACOSX", ".ipynb_checkpoints", ".git"})
"""Folders that programs create next to a submission."""

_NOT_WRITTEN = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
"""Files that operating systems create in folders that are opened."""


class UnusableParcelError(VramlabError):
    """The folder or zip cannot be opened, or is no such thing."""


@dataclass(frozen=True)
class Parcel:
    """One file in what an LMS, or a student, gave."""

    path: PurePosixPath
    """Its place, as it says itself: not to be opened."""

    modified: datetime
    """UTC. Zips keep the time of day without saying where; it is taken for UTC."""

    read: Callable[[], bytes]
    """Reads it. Raises `Refused` if it is too large, damaged, locked or a link."""

    @property
    def is_notebook(self) -> bool:
        return self.path.suffix.lower() == _NOTEBOOK

    @property
    def is_archive(self) -> bool:
        """Whether notebooks may be hidden in it."""
        return self.path.suffix.lower() in _ARCHIVES

    @property
    def is_of_no_use(self) -> bool:
        """Whether nothing here can do anything with it: a script, a document, a picture."""
        return not (self.is_notebook or self.is_archive or self.is_timestamp)

    @property
    def leads_out(self) -> bool:
        """Whether its place would be outside of where the source is unpacked."""
        return self.path.is_absolute() or ".." in self.path.parts

    @property
    def is_timestamp(self) -> bool:
        return self.path.name == TIMESTAMP


@contextmanager
def opened(source: Path) -> Iterator[list[Parcel]]:
    """List the submitted files in a folder or a zip, by place.

    They can be read as long as it is open.

    Raises:
        UnusableParcelError: it is neither, cannot be opened, or has too many entries.
    """
    if source.is_dir():
        yield _listed(source, _in_folder(source))
    elif source.is_file():
        try:
            archive = zipfile.ZipFile(source)
        except (zipfile.BadZipFile, OSError) as error:
            raise UnusableParcelError(f"{source} cannot be opened as a zip: {error}") from None
        with archive:
            yield _listed(source, _in_zip(archive))
    else:
        raise UnusableParcelError(f"there is no folder or zip {source}")


def _listed(source: Path, found: Iterable[Parcel]) -> list[Parcel]:
    parcels = []
    for count, parcel in enumerate(found):
        if count == MAX_ENTRIES:
            raise UnusableParcelError(f"{source} has more than {MAX_ENTRIES:,} entries")
        if _NOT_SUBMITTED.isdisjoint(parcel.path.parts) and parcel.path.name not in _NOT_WRITTEN:
            parcels.append(parcel)
    return sorted(parcels, key=lambda parcel: parcel.path)


def _in_folder(folder: Path) -> Iterator[Parcel]:
    for place, _, names in os.walk(folder):  # does not follow links to folders
        for name in names:
            path = Path(place, name)
            inside = PurePosixPath(path.relative_to(folder).as_posix())
            modified = datetime.fromtimestamp(path.lstat().st_mtime, UTC).replace(tzinfo=None)
            yield Parcel(inside, modified, partial(read_plainly, path.parent, name, _LIMIT))


def _in_zip(archive: zipfile.ZipFile) -> Iterator[Parcel]:
    for entry in archive.infolist():
        if not entry.is_dir():
            inside = PurePosixPath(entry.filename)
            yield Parcel(inside, _modified(entry), partial(_read_entry, archive, entry))


def _modified(entry: zipfile.ZipInfo) -> datetime:
    try:
        return datetime(*entry.date_time)
    except ValueError:  # a zip without times may say the 0th of January 1980
        return datetime(1980, 1, 1)


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise Refused("it is a link to somewhere else")
    if entry.flag_bits & 1:
        raise Refused("it is locked with a password")
    try:
        with archive.open(entry) as file:
            # Whatever size it claims, and however well it is compressed: no more than this.
            content = file.read(_LIMIT + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
        raise Refused(f"it is damaged: {error}") from None
    if len(content) > _LIMIT:
        raise Refused(f"it is larger than {_LIMIT:,} bytes")
    return content
