"""Find a file's student, by the names that learning management systems give to files.

Sources: Canvas, lib/content_zipper.rb of instructure/canvas-lms: `NAME[_LATE]_USER_FILE_TITLE`, or
`[LATE_]anon_CODE_FILE_TITLE` where students are anonymous. Moodle, mod/assign/locallib.php of
moodle/moodle, download_submissions: `FULL NAME_NUMBER_assignsubmission_file_`, as a folder or
before the title, with spaces for any `_` in names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from vramlab_classroom.lms.student_ids import is_safe_id, student_id

_CANVAS_ANONYMOUS = re.compile(
    r"(?P<late>LATE_)?(?P<user>anon_[^\W_]+)_(?P<file>[0-9]+)_(?P<title>.+)"
)
_CANVAS = re.compile(
    r"(?:(?P<name>\w+?)_)?(?P<late>LATE_)?(?P<user>[0-9]+)_(?P<file>[0-9]+)_(?P<title>.+)"
)
_MOODLE = re.compile(r"(?P<name>[^_]+)_(?P<number>[0-9]+)_assignsubmission_file_?(?P<title>.*)")


class Layout(Enum):
    """How a download names students and assignments."""

    CANVAS = "canvas"
    MOODLE = "moodle"
    FOLDER = "folder"
    """`<student>/<assignment>/<file>` as nbgrader has it, or `<student>/<file>`."""


@dataclass(frozen=True)
class Origin:
    """Where a file comes from."""

    student: str
    """The student's id; empty if the name has nothing that an id could be made of."""

    name: str
    """What the source calls the student."""

    title: str
    """What the student called the file."""

    assignment: str = ""
    """The folder that it lies in; empty if that is the student's own."""

    number: str = ""
    """By which the LMS tells students of one name apart."""

    is_late: bool = False
    """The LMS says that it is late."""

    order: int = 0
    """Higher for later submissions, if names say so."""


def find_layout(paths: Sequence[PurePosixPath]) -> Layout:
    """Return by the places of notebooks where they come from.

    A single name shows nothing, since students choose names, too: most of them have to agree.
    """
    inside = _without_wrapper(paths)
    moodle = sum(bool(_MOODLE.fullmatch(path.parts[0])) for path in inside)
    canvas = sum(len(path.parts) == 1 and bool(_canvas_match(path.name)) for path in inside)
    if 2 * moodle > len(inside):
        return Layout.MOODLE
    return Layout.CANVAS if 2 * canvas > len(inside) else Layout.FOLDER


def find_origins(
    paths: Sequence[PurePosixPath], layout: Layout, known: Collection[str]
) -> list[Origin | None]:
    """Return the student of each notebook; None if its name does not say.

    Args:
        paths: of the notebooks in a download.
        layout: how it names them.
        known: names of the assignments there are.
    """
    if layout is Layout.FOLDER:
        return [_folder_origin(path, known) for path in paths]
    inside = _without_wrapper(paths)
    find = _canvas_origin if layout is Layout.CANVAS else _moodle_origin
    return [find(path) for path in inside]


def canvas_id(name: str, user: str) -> str:
    """Make a student's id of Canvas's name (`Lovelace, Ada`) and id: `lovelaceada-101`."""
    letters = student_id(re.sub(r"\W", "", name))
    return f"{letters}-{user}" if letters else student_id(user)


def letters(name: str) -> str:
    """Return what stays of an assignment's name whatever its capitals and signs are elsewhere."""
    return re.sub(r"[\W_]", "", name).casefold()


def _without_wrapper(paths: Sequence[PurePosixPath]) -> list[PurePosixPath]:
    """Leave out a folder that everything lies in, unless it is a student's."""
    tops = {path.parts[0] for path in paths if len(path.parts) > 1}
    (top,) = tops if len(tops) == 1 else ("",)
    if not top or _MOODLE.fullmatch(top) or any(len(path.parts) == 1 for path in paths):
        return list(paths)
    return [path.relative_to(top) for path in paths]


def _canvas_match(name: str) -> re.Match[str] | None:
    return _CANVAS_ANONYMOUS.fullmatch(name) or _CANVAS.fullmatch(name)


def _canvas_origin(path: PurePosixPath) -> Origin | None:
    match = _canvas_match(path.name)
    if match is None or len(path.parts) > 1:
        return None
    name = match.groupdict().get("name") or ""
    return Origin(
        student=canvas_id(name, match["user"]),
        name=f"{name} {match['user']}".strip(),
        title=match["title"],
        number=match["user"],
        is_late=bool(match["late"]),
        order=int(match["file"]),
    )


def _moodle_origin(path: PurePosixPath) -> Origin | None:
    match = _MOODLE.fullmatch(path.parts[0])
    if match is None:
        return None
    title = path.name if len(path.parts) > 1 else match["title"]
    return Origin(student_id(match["name"]), match["name"], title, number=match["number"])


def _folder_origin(path: PurePosixPath, known: Collection[str]) -> Origin | None:
    parts = path.parts
    if len(parts) >= 3 and parts[-2] in known:
        return Origin(_id_of_folder(parts[-3]), parts[-3], path.name, assignment=parts[-2])
    if len(parts) == 2 and parts[0] not in known:
        return Origin(_id_of_folder(parts[0]), parts[0], path.name)
    return None


def _id_of_folder(name: str) -> str:
    """Keep a name that can be an id: the teacher has given it."""
    return name if is_safe_id(name) else student_id(name)
