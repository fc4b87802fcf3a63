"""Finding submissions, among whatever else lies there, and reading their files warily."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vramlab.errors import VramlabError
from vramlab_classroom.run.submissions import (
    Refused,
    Submission,
    find_submissions,
    read_plainly,
    select,
)

KNOWN = ("01_context", "02_pages")


def put(submitted: Path, student: str, assignment: str, content: bytes = b"{}") -> Path:
    path = submitted / student / assignment / f"{assignment}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_they_come_exercise_by_exercise(tmp_path: Path) -> None:
    for student in ("bob", "ada", "Zoë", "[x] *"):
        for assignment in KNOWN:
            put(tmp_path, student, assignment)
    found, strays = find_submissions(tmp_path, KNOWN)
    students = ["Zoë", "[x] *", "ada", "bob"]
    assert [(each.assignment, each.student) for each in found] == [
        *(("01_context", student) for student in students),
        *(("02_pages", student) for student in students),
    ]
    assert strays == []
    assert found[0].notebook() == b"{}"


def test_what_is_no_submission_is_named(tmp_path: Path) -> None:
    put(tmp_path, "ada", "02_pages")
    put(tmp_path, "ada", "99_unknown")
    put(tmp_path, "bad\nname", "02_pages")
    put(tmp_path, " bob", "02_pages")
    put(tmp_path, "x" * 129, "02_pages")
    put(tmp_path, os.fsdecode(b"caf\xe9"), "02_pages")
    (tmp_path / "all.zip").touch()
    (tmp_path / "zoe").mkdir()
    (tmp_path / ".DS_Store").touch()
    (tmp_path / "eve").symlink_to("/etc")
    (tmp_path / "ada" / "01_context").symlink_to(tmp_path)
    found, strays = find_submissions(tmp_path, KNOWN)
    assert [each.student for each in found] == ["ada"]
    assert {stray.path.relative_to(tmp_path).as_posix(): stray.reason for stray in strays} == {
        " bob": "the student's name begins or ends with a space",
        "ada/01_context": "it is a link to somewhere else",
        "ada/99_unknown": "no exercise has that name",
        "all.zip": "it is not a folder",
        "bad\nname": "the student's name has characters that cannot be shown",
        "caf\udce9": "the student's name has characters that cannot be shown",
        "eve": "it is a link to somewhere else",
        "zoe": "nothing lies in it",
        "x" * 129: "the student's name has more than 128 characters",
    }


def test_links_pipes_folders_and_giants_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "giant").open("wb") as giant:
        giant.truncate(2**40)  # a terabyte that takes no room
    for name, reason in {
        "link": "link is a link to somewhere else.",
        "pipe": "pipe is not a file.",
        "folder": "folder is not a file.",
        "giant": "giant has 1099511627776 bytes; up to 100 are read.",
    }.items():
        with pytest.raises(Refused) as refused:
            read_plainly(tmp_path, name, 100)
        assert f"{refused.value}" == reason


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "ada", "02_pages")
    (tmp_path / "eve").symlink_to(tmp_path / "ada" / "02_pages")
    with pytest.raises(Refused, match="Its folder is a link"):
        Submission("eve", "02_pages", tmp_path / "eve").notebook()


@pytest.mark.parametrize(
    ("written", "time"),
    [(None, None), (b"", None), (b"2026-01-01 10:00:00 UTC\n", "2026-01-01 10:00:00 UTC")],
)
def test_the_time_of_submission_is_what_nbgrader_wrote(
    tmp_path: Path, written: bytes | None, time: str | None
) -> None:
    if written is not None:
        (tmp_path / "timestamp.txt").write_bytes(written)
    assert Submission("ada", "02_pages", tmp_path).timestamp() == time


def test_students_are_chosen_by_name_or_pattern() -> None:
    everybody = [
        Submission(student, assignment, Path())
        for assignment in KNOWN
        for student in ("ada", "bea", "bob", "[x]")
    ]

    def chosen(*students: str) -> list[str]:
        return [each.student for each in select(everybody, ["02_pages"], students)]

    assert chosen() == ["ada", "bea", "bob", "[x]"]
    assert chosen("b*", "[x]") == ["bea", "bob", "[x]"]
    assert len(select(everybody, [], ["ada"])) == 2
    with pytest.raises(VramlabError, match="no submission is of a student adda"):
        select(everybody, [], ["ada", "adda"])
    with pytest.raises(VramlabError, match="no submissions for 03_other"):
        select(everybody, ["03_other"])
