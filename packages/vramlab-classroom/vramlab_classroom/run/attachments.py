"""Files that were submitted next to the notebook: copied for the human who reads the submission.

Grading needs none of them. nbgrader copies whatever lies in a submission's folder, and what its
links lead to; here no link is followed, and the number of files and their size have limits.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from vramlab_classroom.run.submissions import TIMESTAMP, Refused, Stray, read_plainly

MAX_BYTES = 100_000_000
"""Of a submission's files together: what nbgrader's exchange takes by default."""

MAX_FILES = 500
MAX_DEPTH = 8
"""Of folders in folders."""

_SHOWN_DIGITS = 12


@dataclass(frozen=True)
class Attachments:
    """What lies beside the notebook in a submission's folder."""

    folder: Path
    files: tuple[Path, ...]
    """Places in the folder."""

    left: tuple[Stray, ...]
    """What is not copied, and why."""

    @property
    def state(self) -> str:
        """Say in short which files these are; another text when one has changed, "" for none."""
        if not self.files:
            return ""
        facts = hashlib.sha256()
        for file in self.files:
            status = (self.folder / file).lstat()
            facts.update(f"{file!a} {status.st_size} {status.st_mtime_ns}\n".encode())
        return facts.hexdigest()[:_SHOWN_DIGITS]

    def copy(self, destination: Path) -> list[Stray]:
        """Copy them into a folder; give all that is not copied."""
        left = list(self.left)
        remaining_bytes = MAX_BYTES
        for file in self.files:
            try:
                source = self.folder / file
                content = read_plainly(source.parent, source.name, remaining_bytes)
            except (Refused, FileNotFoundError) as error:
                left.append(Stray(self.folder / file, f"{error}"))
                continue
            remaining_bytes -= len(content)
            (destination / file).parent.mkdir(parents=True, exist_ok=True)
            (destination / file).write_bytes(content)
        return left


def find_attachments(folder: Path, ignored: Sequence[str]) -> Attachments:
    """List what lies beside the notebook.

    Args:
        folder: of a submission.
        ignored: patterns of names that are left out silently: nbgrader's `CourseDirectory.ignore`.
    """
    files: list[Path] = []
    left: list[Stray] = []
    for file, reason in _walk(folder, [*ignored, "*.ipynb", TIMESTAMP]):
        if len(files) + len(left) == MAX_FILES:
            left.append(Stray(folder, f"it has more than {MAX_FILES} files"))
            break
        if reason:
            left.append(Stray(folder / file, reason))
        else:
            files.append(file)
    return Attachments(folder, tuple(files), tuple(left))


def _walk(folder: Path, ignored: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield places in a folder, each with the reason why it is not copied, or with none."""
    places = deque([Path()])
    while places:
        place = places.popleft()
        try:
            entries = sorted(os.scandir(folder / place), key=lambda entry: entry.name)
        except OSError as error:
            yield place, f"it cannot be read: {error.strerror}"
            continue
        for entry in entries:
            inside = place / entry.name
            if any(fnmatchcase(entry.name, pattern) for pattern in ignored):
                continue
            if entry.is_symlink():
                yield inside, "it is a link to somewhere else"
            elif entry.is_file():
                yield inside, ""
            elif not entry.is_dir():
                yield inside, "it is not a file"
            elif len(inside.parts) > MAX_DEPTH:
                yield inside, f"it lies in more than {MAX_DEPTH} folders"
            else:
                places.append(inside)
