"""Finds submissions, and reads their files without trusting anything about them.

A submission can be a link to the gradebook, a pipe that never ends, or a gigabyte. Nothing here
follows a link, waits, or reads more than a limit; what is refused is named with its reason.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from vramlab.errors import VramlabError
from vramlab.units import MIB

MAX_NOTEBOOK_BYTES = 32 * MIB
MAX_TIMESTAMP_BYTES = 200
MAX_NAME_CHARACTERS = 128
"""Of a student: what nbgrader's gradebook has room for."""

TIMESTAMP = "timestamp.txt"


class Refused(VramlabError):
    """A file of a submission is not read; the message says why."""


@dataclass(frozen=True)
class Submission:
    """A folder that a student submitted."""

    student: str
    assignment: str
    folder: Path

    def notebook(self) -> bytes:
        """Read the notebook.

        Raises:
            Refused: it is not there, or nothing that should be read.
        """
        name = f"{self.assignment}.ipynb"
        try:
            return read_plainly(self.folder, name, MAX_NOTEBOOK_BYTES)
        except FileNotFoundError:
            others = [path.name for path in sorted(self.folder.glob("*.ipynb"))]
            there = f"; there is {_listed(others)}" if others else ""
            raise Refused(f"There is no notebook {name}{there}.") from None

    def timestamp(self) -> str | None:
        """Read the time of submission that nbgrader wrote; None without one.

        Raises:
            Refused: the file is nothing that should be read, or holds no time.
        """
        from nbgrader.utils import parse_utc

        try:
            text = read_plainly(self.folder, TIMESTAMP, MAX_TIMESTAMP_BYTES).decode().strip()
            if text:
                parse_utc(text)
        except FileNotFoundError:
            return None
        except (ValueError, OverflowError):
            raise Refused(
                f"{TIMESTAMP} holds no time, so lateness is unknown: correct or delete the file."
            ) from None
        return text or None


@dataclass(frozen=True)
class Stray:
    """Something among the submissions that is none."""

    path: Path
    reason: str


def find_submissions(
    submitted: Path, known: Collection[str]
) -> tuple[list[Submission], list[Stray]]:
    """Find all submissions.

    Args:
        submitted: the folder with `<student>/<assignment>/`.
        known: names of the assignments there are.

    Returns:
        Submissions, exercise by exercise, and what else lies there.
    """
    found: list[Submission] = []
    strays: list[Stray] = []
    for student, folder in _folders(submitted, strays):
        problem = _problem_with_name(student)
        if problem:
            strays.append(Stray(folder, problem))
            continue
        folders = list(_folders(folder, strays))
        if not folders and not any(folder == stray.path.parent for stray in strays):
            strays.append(Stray(folder, "nothing lies in it"))
        for assignment, place in folders:
            if assignment in known:
                found.append(Submission(student, assignment, place))
            else:
                strays.append(Stray(place, "no exercise has that name"))
    found.sort(key=lambda each: (each.assignment, each.student))
    return found, strays


def select(
    submissions: Sequence[Submission],
    assignments: Collection[str] = (),
    students: Sequence[str] = (),
) -> list[Submission]:
    """Choose submissions; no names mean all.

    Args:
        submissions: to choose from.
        assignments: names.
        students: names, or patterns such as `b*`.

    Raises:
        VramlabError: nothing was submitted for one of the names.
    """
    chosen = [each for each in submissions if not assignments or each.assignment in assignments]
    for name in assignments:
        if not any(each.assignment == name for each in chosen):
            raise VramlabError(
                f"no submissions for {name}: collect them first, see vramlab collect --help"
            )
    for pattern in students:
        if not any(_matches(each, pattern) for each in chosen):
            raise VramlabError(f"no submission is of a student {pattern}")
    if not students:
        return chosen
    return [each for each in chosen if any(_matches(each, pattern) for pattern in students)]


def select_strays(strays: Sequence[Stray], submitted: Path, students: Sequence[str]) -> list[Stray]:
    """Choose what is no submission but lies with those of some students; no names mean all."""
    return [
        stray
        for stray in strays
        if not students
        or any(
            fnmatchcase(stray.path.relative_to(submitted).parts[0], pattern) for pattern in students
        )
    ]


def read_plainly(folder: Path, name: str, limit_bytes: int) -> bytes:
    """Read a file of a submission if it is an ordinary one, in an ordinary folder.

    Raises:
        FileNotFoundError: there is no such file.
        Refused: it is a link, no file at all, or larger than the limit.
    """
    if folder.is_symlink():
        raise Refused("Its folder is a link to somewhere else.")
    # O_NONBLOCK: otherwise opening a pipe without a writer blocks.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(folder / name, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused(f"{name} is a link to somewhere else.") from None
        raise Refused(f"{name} cannot be read: {error.strerror}.") from None
    facts = os.fstat(file)
    if not stat.S_ISREG(facts.st_mode):
        os.close(file)
        raise Refused(f"{name} is not a file.")
    with os.fdopen(file, "rb") as opened:
        content = b"" if facts.st_size > limit_bytes else opened.read(limit_bytes + 1)
        size_bytes = max(facts.st_size, len(content))
    if size_bytes > limit_bytes:
        raise Refused(f"{name} has {size_bytes} bytes; up to {limit_bytes} are read.")
    return content


def _folders(place: Path, strays: list[Stray]) -> Iterator[tuple[str, Path]]:
    """Yield what lies in a folder, by name; put files and links among the strays."""
    try:
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        strays.append(Stray(place, f"it cannot be read: {error.strerror}"))
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue  # .gitignore, .DS_Store, .ipynb_checkpoints
        if entry.is_symlink():
            strays.append(Stray(Path(entry.path), "it is a link to somewhere else"))
        elif entry.is_dir():
            yield entry.name, Path(entry.path)
        else:
            strays.append(Stray(Path(entry.path), "it is not a folder"))


def _problem_with_name(student: str) -> str | None:
    if not student.isprintable():  # control characters, and bytes that are no text
        return "the student's name has characters that cannot be shown"
    if student != student.strip():
        return "the student's name begins or ends with a space"
    if len(student) > MAX_NAME_CHARACTERS:
        return f"the student's name has more than {MAX_NAME_CHARACTERS} characters"
    return None


def _matches(submission: Submission, pattern: str) -> bool:
    return submission.student == pattern or fnmatchcase(submission.student, pattern)


def _listed(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(ascii(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
