"""Collects submissions from elsewhere: a folder or zip becomes `autograder/submitted/`.

What is taken is written as nbgrader has it, `<student>/<assignment>/<assignment>.ipynb` with a
`timestamp.txt`; all else is listed with its reason. A submission that is there already gives way
only to a newer one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp

from vramlab.errors import VramlabError
from vramlab_classroom.lms.archives import Parcel, opened
from vramlab_classroom.lms.submission_names import (
    Layout,
    Origin,
    find_layout,
    find_origins,
    letters,
)
from vramlab_classroom.run.submissions import TIMESTAMP, Refused, Submission

_COPY_SIGN = re.compile(r"(-[0-9]+|-Copy[0-9]+| ?\([0-9]+\))$")
"""What Canvas, JupyterLab and browsers add to the name of a file that was there already."""

_MOST_COPIES = 4
"""Of a copy of a copy: a name can be thousands of characters long."""

_LATE_AT_LEAST = timedelta(seconds=1)


@dataclass(frozen=True)
class Item:
    """What became of one file."""

    source: str
    """Its place in the folder or zip."""

    is_taken: bool
    text: str
    """Where it went, or why it was left."""


@dataclass(frozen=True)
class Destination:
    """Where submissions go, and what is known there."""

    submitted: Path
    """The folder with `<student>/<assignment>/`."""

    known: Collection[str]
    """Names of the assignments there are."""

    due: Mapping[str, datetime]
    """UTC. When they are due; only of those whose due date is known."""


@dataclass(frozen=True)
class HandedIn:
    """A notebook, who handed it in, and for what."""

    parcel: Parcel
    origin: Origin
    assignment: str
    layout: Layout
    stamp: Parcel | None
    """A file that says when; only in folders."""


@dataclass(frozen=True)
class _Candidate:
    """A notebook whose student is known."""

    parcel: Parcel
    origin: Origin

    @property
    def source(self) -> str:
        return str(self.parcel.path)

    @property
    def order(self) -> tuple[int, datetime]:
        return self.origin.order, self.parcel.modified


def collect(
    source: Path,
    destination: Destination,
    *,
    layout: Layout | None = None,
    assignment: str | None = None,
    overwrite: bool = False,
) -> list[Item]:
    """Take in all submissions of a folder or zip.

    Args:
        source: what an LMS gave for download, or a folder.
        destination: where they go.
        layout: how it names students and assignments; detected if None.
        assignment: what they are for. By default the names of files and folders say that; with
            it, a student's only notebook is taken whatever its name is.
        overwrite: take a submission even if the one that is there is not older.

    Raises:
        UnusableParcelError: the source cannot be opened.
        VramlabError: the assignment is unknown.
    """
    if assignment is not None and assignment not in destination.known:
        raise VramlabError(f"there is no assignment {assignment!r} to collect for")
    with opened(source) as parcels:
        handed_in, items = sort_out(parcels, destination.known, layout, assignment)
        others = (each for each in parcels if each.is_of_no_use and not each.leads_out)
        items += [_left(each, f"it is no notebook: {_ONLY}") for each in others]
        items += [_take(each, destination, overwrite=overwrite) for each in handed_in]
    return sorted(items, key=lambda item: item.source)


def sort_out(
    parcels: Sequence[Parcel],
    known: Collection[str],
    layout: Layout | None = None,
    assignment: str | None = None,
) -> tuple[list[HandedIn], list[Item]]:
    """Find the student and assignment of each notebook.

    Args:
        parcels: everything in a folder or zip.
        known: names of the assignments there are.
        layout: how it names students and assignments; detected if None.
        assignment: what it is for; see `collect`.

    Returns:
        The last notebook of each student for each assignment; and all else.
    """
    items = []
    notebooks = []
    for parcel in parcels:
        if parcel.leads_out:
            items.append(
                _left(parcel, "its path leads out of the folder; ask the student for the notebook")
            )
        elif parcel.is_archive:
            items.append(_left(parcel, "it may hold notebooks: unpack it, and collect the folder"))
        elif parcel.is_notebook:
            notebooks.append(parcel)
    paths = [parcel.path for parcel in notebooks]
    layout = layout or find_layout(paths)
    candidates = []
    origins = find_origins(paths, layout, known)
    for parcel, origin in zip(notebooks, origins, strict=True):
        if origin is None:
            items.append(_left(parcel, _WHO[layout]))
        elif not origin.student:
            items.append(_left(parcel, "no id can be made of the student's name"))
        else:
            candidates.append(_Candidate(parcel, origin))
    candidates, clashing = _told_apart(candidates, layout)
    items += [_left(each.parcel, _CLASH) for each in clashing]
    stamps = {parcel.path.parent: parcel for parcel in parcels if parcel.is_timestamp}
    handed_in = []
    for own in _by_student(candidates).values():
        for name, group, unclear in _by_assignment(own, known, assignment):
            if name is None:
                items += [_left(each.parcel, unclear) for each in group]
                continue
            chosen, others = _newest(group)
            items += others
            if chosen is not None:
                stamp = stamps.get(chosen.parcel.path.parent) if layout is Layout.FOLDER else None
                handed_in.append(HandedIn(chosen.parcel, chosen.origin, name, layout, stamp))
    return handed_in, items


_WHO = {
    Layout.CANVAS: "unknown student: its name is not one that Canvas gives",
    Layout.MOODLE: "unknown student: it is not in a folder that Moodle creates",
    Layout.FOLDER: "unknown student: it is not in a folder <student> or <student>/<assignment>",
}
_ONLY = "only .ipynb files are graded, so look at it yourself, or ask for a notebook"
_CLASH = "two students would get the same id: rename one of the folders"


def _left(parcel: Parcel, reason: str) -> Item:
    return Item(str(parcel.path), False, reason)


def _told_apart(
    candidates: Sequence[_Candidate], layout: Layout
) -> tuple[list[_Candidate], list[_Candidate]]:
    """Give students of one id ids of their own, by the number that the LMS knows them by.

    Returns:
        The candidates, and those that cannot be told apart.
    """
    people = defaultdict(set)
    for each in candidates:
        people[each.origin.student].add((each.origin.name, each.origin.number))
    kept, clashing = [], []
    for each in candidates:
        origin = each.origin
        if len(people[origin.student]) == 1:
            kept.append(each)
        elif layout is Layout.FOLDER:
            clashing.append(each)
        else:
            own_id = f"{origin.student}-{origin.number}"
            kept.append(replace(each, origin=replace(origin, student=own_id)))
    return kept, clashing


def _by_student(candidates: Sequence[_Candidate]) -> dict[str, list[_Candidate]]:
    found = defaultdict(list)
    for each in candidates:
        found[each.origin.student].append(each)
    return found


def _by_assignment(
    own: Sequence[_Candidate], known: Collection[str], asked: str | None
) -> Iterator[tuple[str | None, list[_Candidate], str]]:
    """Group a student's notebooks by what they are for; None, and why, for those of no use."""
    names = {letters(name): name for name in known}
    groups: dict[str | None, list[_Candidate]] = defaultdict(list)
    for each in own:
        named = next((names[key] for key in _keys(each.origin.title) if key in names), None)
        groups[each.origin.assignment or named].append(each)
    unnamed = groups.pop(None, [])
    if asked is None:
        unclear = "its name is that of no assignment: say which it is for with --assignment"
    elif unnamed and asked not in groups and len(unnamed) == 1:
        groups[asked], unnamed, unclear = unnamed, [], ""
    else:
        unclear = f"its name is not {asked}, and it is not the student's only notebook"
    for name, group in groups.items():
        if asked in (None, name):
            yield name, group, ""
        else:
            yield None, group, f"it is for {name}, not for {asked}"
    if unnamed:
        yield None, unnamed, unclear


def _keys(title: str) -> Iterator[str]:
    """Yield what an assignment may be called if a file is: with every sign of a copy, then without.

    An assignment can be called `lab-1` itself.
    """
    stem = PurePosixPath(title).stem
    for _ in range(_MOST_COPIES):
        yield letters(stem)
        stem = _COPY_SIGN.sub("", stem)


def _newest(group: Sequence[_Candidate]) -> tuple[_Candidate | None, list[Item]]:
    """Choose the latest submission; None if that is unknown."""
    *others, last = sorted(group, key=lambda each: each.order)
    if others and others[-1].order == last.order and not _same(others[-1], last):
        reason = "there are several, and nothing says which of them is the last"
        return None, [_left(each.parcel, reason) for each in group]
    return last, [_left(each.parcel, f"{last.source!r} is newer") for each in others]


def _same(one: _Candidate, other: _Candidate) -> bool:
    try:
        return one.parcel.read() == other.parcel.read()
    except Refused:
        return False


def _take(handed_in: HandedIn, destination: Destination, *, overwrite: bool) -> Item:
    """Put a notebook where nbgrader looks for it, unless a newer one is there."""
    student, assignment = handed_in.origin.student, handed_in.assignment
    submission = Submission(student, assignment, destination.submitted / student / assignment)
    stamp = _stamp(handed_in, destination.due.get(assignment))
    source = str(handed_in.parcel.path)
    note = f"{student}, {assignment}, {stamp:%Y-%m-%d %H:%M}"
    if handed_in.origin.is_late:
        note += ", late"
    if handed_in.stamp is not None and stamp != handed_in.parcel.modified:
        note += f" (says its {TIMESTAMP})"  # which a student could have written
    try:
        content = handed_in.parcel.read()
    except Refused as refused:
        return _left(handed_in.parcel, str(refused))
    there = _there(submission)
    if there is not None:
        old_content, old_stamp = there
        if old_content == content:
            return Item(source, True, f"{note}: it was there already")
        if not overwrite and (old_stamp is None or stamp <= old_stamp):
            when = f"of {old_stamp:%Y-%m-%d %H:%M} UTC" if old_stamp else "of an unknown time"
            return _left(
                handed_in.parcel,
                f"{student} has another submission {when} there, and this one of "
                f"{stamp:%Y-%m-%d %H:%M} UTC is not newer; --overwrite takes it all the same",
            )
        note += ", instead of another one" if overwrite else ", instead of an older one"
    _write(submission, content, stamp)
    return Item(source, True, note)


def _stamp(handed_in: HandedIn, due: datetime | None) -> datetime:
    """Return when it was submitted, UTC.

    Files of an LMS's download have the time of the download. So submissions that the LMS does not
    call late count as submitted at the due date, and late ones a second after it, since how late
    they were is unknown.
    """
    from nbgrader.utils import parse_utc

    modified = handed_in.parcel.modified
    if handed_in.layout is Layout.FOLDER:
        try:
            text = handed_in.stamp.read().decode().strip() if handed_in.stamp else ""
            stamp: datetime = parse_utc(text) if text else modified
        except (Refused, ValueError, OverflowError):
            return modified
        return stamp
    if due is None:
        return modified
    return due + _LATE_AT_LEAST if handed_in.origin.is_late else min(due, modified)


def _there(submission: Submission) -> tuple[bytes, datetime | None] | None:
    """Read the submission that was collected before, and its time; None without one."""
    from nbgrader.utils import parse_utc

    if not os.path.lexists(submission.folder):
        return None
    try:
        content = submission.notebook()
    except Refused:
        content = b""
    try:
        text = submission.timestamp()
    except Refused:
        text = None
    return content, parse_utc(text) if text else None


def _write(submission: Submission, content: bytes, stamp: datetime) -> None:
    """Write a submission, whole or not at all."""
    if submission.folder.is_symlink() or submission.folder.parent.is_symlink():
        raise VramlabError(f"{submission.folder} is a link: nothing is written through it")
    submission.folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(mkdtemp(prefix=".collecting-", dir=submission.folder.parent))
    try:
        new = made / "new"
        new.mkdir()
        (new / f"{submission.assignment}.ipynb").write_bytes(content)
        (new / TIMESTAMP).write_text(f"{stamp:%Y-%m-%d %H:%M:%S.%f} UTC\n")
        if submission.folder.exists():
            submission.folder.rename(made / "old")
        new.rename(submission.folder)
    finally:
        shutil.rmtree(made)
