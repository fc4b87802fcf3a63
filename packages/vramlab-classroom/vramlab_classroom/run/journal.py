"""Remembers what was marked and what was entered, whatever interrupts a run.

A database beside the gradebook. A marked submission is on disk here before anything is done with
it, so a run that ends anywhere, by a signal or by a power cut, is continued by the next: what was
marked is never marked again, and what was not entered is entered.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vramlab.context import Closing
from vramlab.errors import VramlabError
from vramlab_classroom.run.graded_submission import Marked

_TABLE = """
CREATE TABLE IF NOT EXISTS markings (
    number INTEGER PRIMARY KEY,
    student TEXT NOT NULL,
    assignment TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    marked_at TEXT NOT NULL,
    marked BLOB,
    retry INTEGER NOT NULL,
    entered TEXT,
    returned INTEGER NOT NULL DEFAULT 0
) STRICT
"""
_INDEX = "CREATE INDEX IF NOT EXISTS latest ON markings (student, assignment, number)"


class JournalError(VramlabError):
    """The journal cannot be used; the message says why."""


@dataclass(frozen=True)
class Entry:
    """A marking, and what was done with it."""

    number: int
    """Of the marking, counted from 1 through all runs."""

    student: str
    assignment: str
    sha256: str
    """Of the notebook that was marked."""

    fingerprint: str
    """Of what judged it."""

    marked_at: str
    """Time in UTC, by ISO 8601."""

    retry: bool
    """Whether another try may do better: it failed, but not because of what was submitted."""

    entered: str | None
    """Into which gradebook, and with which time of submission; None if not yet."""

    returned: bool
    """Whether the feedback was written."""


class Journal(Closing):
    """The journal of a course, open for one run: a second run at the same time is refused."""

    def __init__(self, path: Path) -> None:
        """Open it; it is made if it is not there.

        Raises:
            JournalError: another run has it open, or it cannot be opened.
        """
        self._path = path
        self._lock = _locked(path.with_name(f"{path.name}.lock"))
        try:
            with self._errors_translated():
                self._database = sqlite3.connect(path, isolation_level=None)
                self._database.row_factory = sqlite3.Row
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute("PRAGMA synchronous = FULL")
                self._database.execute(_TABLE)
                self._database.execute(_INDEX)
        except JournalError:
            os.close(self._lock)
            raise

    def latest(self, student: str, assignment: str) -> Entry | None:
        """Return the last marking of a submission."""
        with self._errors_translated():
            row = self._database.execute(
                f"SELECT {_FIELDS} FROM markings WHERE student = ? AND assignment = ? "
                "ORDER BY number DESC LIMIT 1",
                (student, assignment),
            ).fetchone()
        return _entry(row) if row else None

    def marked(self, number: int) -> Marked:
        """Return what was marked: only the last marking of a submission is kept in full."""
        with self._errors_translated():
            (packed,) = self._database.execute(
                "SELECT marked FROM markings WHERE number = ?", (number,)
            ).fetchone()
        return _unpacked(packed)

    def attempts(self, student: str, assignment: str) -> list[Marked]:
        """Return the results of each notebook that are kept in full, oldest first."""
        with self._errors_translated():
            rows = self._database.execute(
                "SELECT marked FROM markings AS this WHERE student = ? AND assignment = ? "
                "AND marked IS NOT NULL ORDER BY (SELECT MIN(number) FROM markings AS first WHERE "
                "first.student = this.student AND first.assignment = this.assignment "
                "AND first.sha256 = this.sha256)",
                (student, assignment),
            ).fetchall()
        return [_unpacked(packed) for (packed,) in rows]

    def record(
        self,
        marked: Marked,
        fingerprint: str,
        *,
        retry: bool = False,
        keeps_others: bool = False,
    ) -> int:
        """Write down a marking, replacing an earlier one; it is on disk afterwards.

        Args:
            marked: the submission.
            fingerprint: of what judged it.
            retry: whether another try may do better.
            keeps_others: whether the markings of the student's other notebooks are kept in full.

        Returns:
            Its number.
        """
        who = (marked.student, marked.assignment)
        with self._errors_translated(), self._transaction():
            self._database.execute(
                "UPDATE markings SET marked = NULL WHERE student = ? AND assignment = ? "
                "AND (sha256 = ? OR NOT ?)",
                (*who, marked.sha256, keeps_others),
            )
            now = datetime.now(UTC).isoformat()
            number = self._database.execute(
                "INSERT INTO markings "
                "(student, assignment, sha256, fingerprint, marked_at, marked, retry) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*who, marked.sha256, fingerprint, now, _packed(marked), retry),
            ).lastrowid
        assert number is not None
        return number

    def note_entered(self, number: int, where: str) -> None:
        """Write down that a marking is in the gradebook."""
        with self._errors_translated():
            self._database.execute(
                "UPDATE markings SET entered = ?, returned = 0 WHERE number = ?", (where, number)
            )

    def note_returned(self, number: int) -> None:
        """Write down that the feedback on a marking was written."""
        with self._errors_translated():
            self._database.execute("UPDATE markings SET returned = 1 WHERE number = ?", (number,))

    def entries(self) -> Iterator[Entry]:
        """Yield every marking there ever was, in order."""
        with self._errors_translated():
            yield from map(
                _entry, self._database.execute(f"SELECT {_FIELDS} FROM markings ORDER BY number")
            )

    def close(self) -> None:
        """Close it, and let others open it."""
        self._database.close()
        os.close(self._lock)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise JournalError(
                f"the journal {self._path} cannot be used: {error}. No results were lost. "
                "Fix this problem and run the command again"
            ) from error


def read_markings(path: Path, assignment: str) -> Iterator[Marked]:
    """Read the last marking of every submission of an assignment; a run may be at work meanwhile.

    Returns:
        One after another, by student; nothing if there is no journal yet.

    Raises:
        JournalError: it cannot be read.
    """
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(
                "SELECT marked, MAX(number) FROM markings WHERE assignment = ? "
                "AND marked IS NOT NULL GROUP BY student ORDER BY student",
                (assignment,),
            )
            for packed, _ in rows:
                yield _unpacked(packed)
    except sqlite3.Error as error:
        raise JournalError(f"the journal {path} cannot be read: {error}") from error


# Of an Entry.
_FIELDS = "number, student, assignment, sha256, fingerprint, marked_at, retry, entered, returned"


def _entry(row: sqlite3.Row) -> Entry:
    fields = {**row}
    return Entry(**{**fields, "retry": bool(fields["retry"]), "returned": bool(fields["returned"])})


def _packed(marked: Marked) -> bytes:
    """Write a marking as the journal keeps it."""
    return zlib.compress(json.dumps(marked.as_data()).encode())


def _unpacked(packed: bytes) -> Marked:
    return Marked.from_data(json.loads(zlib.decompress(packed)))


def _locked(path: Path) -> int:
    """Take the lock of a journal; it is given back when the process ends, however it does."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JournalError(f"{path} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise JournalError(
            f"another `vramlab grade` is at work in {path.parent}; wait until it has ended"
        ) from None
    return lock
