"""Submissions from elsewhere: who submitted what and when, and no unwanted files."""

from __future__ import annotations

import os
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from nbgrader.coursedir import CourseDirectory

from vramlab.errors import VramlabError
from vramlab_classroom.lms.collecting import Destination, Item, collect
from vramlab_classroom.lms.submission_names import Layout

EXERCISE = "02_pages_and_blocks"
KNOWN = {EXERCISE, "05_one_training_step"}
DUE = datetime(2026, 3, 1, 12)
BEFORE = (2026, 3, 1, 10, 0, 0)
AFTER = (2026, 3, 9, 10, 0, 0)


class Desk:
    """A folder of submissions, and what is brought to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.submitted = folder / "submitted"

    def zip(self, *names: str, time: tuple[int, ...] = BEFORE, content: str = "{}") -> Path:
        path = self.folder / "download.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(zipfile.ZipInfo(name, time), content)
        return path

    def folder_of(self, *names: str, content: str = "{}") -> Path:
        folder = self.folder / "handed-in"
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
            os.utime(folder / name, (0, datetime(2026, 3, 1, 10).timestamp()))
        return folder

    def collect(self, source: Path, **choices: Any) -> list[Item]:
        return collect(source, Destination(self.submitted, KNOWN, {EXERCISE: DUE}), **choices)

    def there(self) -> dict[str, str]:
        """Return the submitted files by place, with their times."""
        found = {}
        for path in sorted(self.submitted.glob("*/*/*.ipynb")):
            stamp = CourseDirectory().get_existing_timestamp(str(path.parent))
            assert {each.name for each in path.parent.iterdir()} == {path.name, "timestamp.txt"}
            assert path.stem == path.parent.name
            found[f"{path.parts[-3]}/{path.parts[-2]}"] = f"{stamp:%m-%d %H:%M:%S}"
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def _left(items: list[Item]) -> dict[str, str]:
    return {item.source: item.text for item in items if not item.is_taken}


def test_canvas(desk: Desk) -> None:
    source = desk.zip(
        "lovelaceada_101_5001_02_pages_and_blocks.ipynb",
        "babbagecharles_LATE_102_5002_02_pages_and_blocks-2.ipynb",
        "hoppergrace_103_5003_essay.pdf",
        "turingalan_104_5004_05-one-training-step (1).ipynb",
    )
    items = desk.collect(source)
    assert desk.there() == {
        f"babbagecharles-102/{EXERCISE}": "03-01 12:00:01",  # late, at least a second
        f"lovelaceada-101/{EXERCISE}": "03-01 10:00:00",
        "turingalan-104/05_one_training_step": "03-01 10:00:00",
    }
    assert list(_left(items)) == ["hoppergrace_103_5003_essay.pdf"]
    assert [item.text for item in items if item.is_taken] == [
        f"babbagecharles-102, {EXERCISE}, 2026-03-01 12:00, late",
        f"lovelaceada-101, {EXERCISE}, 2026-03-01 10:00",
        "turingalan-104, 05_one_training_step, 2026-03-01 10:00",
    ]


def test_what_the_lms_does_not_call_late_is_not_late(desk: Desk) -> None:
    """A download has the time at which it was made, which is after the due date."""
    desk.collect(desk.zip("ada_1_2_02_pages_and_blocks.ipynb", time=AFTER))
    desk.collect(desk.zip("Bob B_7_assignsubmission_file_/02_pages_and_blocks.ipynb", time=AFTER))
    assert set(desk.there().values()) == {"03-01 12:00:00"}


def test_moodle(desk: Desk) -> None:
    source = desk.zip(
        "Ada Lovelace_71_assignsubmission_file_/02_pages_and_blocks.ipynb",
        "John Doe_74_assignsubmission_file_/02_pages_and_blocks.ipynb",
        "John Doe_75_assignsubmission_file_/02_pages_and_blocks.ipynb",
    )
    assert not _left(desk.collect(source))
    assert list(desk.there()) == [
        f"ada.lovelace/{EXERCISE}",
        f"john.doe-74/{EXERCISE}",
        f"john.doe-75/{EXERCISE}",
    ]


def test_folders_with_and_without_times(desk: Desk) -> None:
    source = desk.folder_of(
        f"ada/{EXERCISE}/{EXERCISE}.ipynb",
        f"ada/{EXERCISE}/data.csv",
        "bob/02_pages_and_blocks.ipynb",
    )
    (source / "ada" / EXERCISE / "timestamp.txt").write_text("2026-02-03 04:05:06 UTC")
    items = desk.collect(source)
    assert list(_left(items)) == [f"ada/{EXERCISE}/data.csv"]
    assert items[0].text.endswith("2026-02-03 04:05 (says its timestamp.txt)")
    # The file's own time: a folder of the teacher's has times that mean something.
    mtime = datetime.fromtimestamp(datetime(2026, 3, 1, 10).timestamp(), UTC)
    assert desk.there() == {
        f"ada/{EXERCISE}": "02-03 04:05:06",
        f"bob/{EXERCISE}": f"{mtime:%m-%d %H:%M:%S}",
    }


def test_with_an_assignment_an_only_notebook_may_have_any_name(desk: Desk) -> None:
    source = desk.folder_of(
        "ada/homework.ipynb",
        "bob/a.ipynb",
        "bob/b.ipynb",
        "cem/02_pages_and_blocks.ipynb",
        "cem/scratch.ipynb",
        "dee/05_one_training_step.ipynb",
    )
    left = _left(desk.collect(source, assignment=EXERCISE))
    assert list(desk.there()) == [f"ada/{EXERCISE}", f"cem/{EXERCISE}"]
    assert set(left) == {
        "bob/a.ipynb",
        "bob/b.ipynb",
        "cem/scratch.ipynb",
        "dee/05_one_training_step.ipynb",
    }
    assert left["bob/a.ipynb"] == (
        "its name is not 02_pages_and_blocks, and it is not the student's only notebook"
    )
    assert left["dee/05_one_training_step.ipynb"] == (
        "it is for 05_one_training_step, not for 02_pages_and_blocks"
    )
    left = _left(desk.collect(source))
    assert left["ada/homework.ipynb"].startswith("its name is that of no assignment")


def test_of_several_the_last_is_taken(desk: Desk) -> None:
    source = desk.zip("ada_1_50_02_pages_and_blocks.ipynb", "ada_1_51_02_pages_and_blocks-1.ipynb")
    assert _left(desk.collect(source)) == {
        "ada_1_50_02_pages_and_blocks.ipynb": "'ada_1_51_02_pages_and_blocks-1.ipynb' is newer"
    }


def test_of_several_with_one_time_none_is_taken_unless_they_are_the_same(desk: Desk) -> None:
    folder = "A_1_assignsubmission_file_/"
    path = desk.zip(f"{folder}02_pages_and_blocks.ipynb")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(zipfile.ZipInfo(f"{folder}02_pages_and_blocks (1).ipynb", BEFORE), "[]")
    assert len(_left(desk.collect(path))) == 2
    assert not desk.there()
    same = desk.zip(f"{folder}02_pages_and_blocks.ipynb", f"{folder}02_pages_and_blocks (1).ipynb")
    assert len(_left(desk.collect(same))) == 1
    assert list(desk.there()) == [f"a/{EXERCISE}"]


def test_a_submission_gives_way_to_a_newer_one_only(desk: Desk) -> None:
    name = "ada_1_50_02_pages_and_blocks.ipynb"
    place = desk.submitted / "ada-1" / EXERCISE / f"{EXERCISE}.ipynb"
    desk.collect(desk.zip(name, content="first"))
    again = desk.collect(desk.zip(name, content="first"))
    assert again[0].text.endswith("it was there already")
    (older,) = _left(desk.collect(desk.zip(name, content="other"))).values()
    assert older == (
        "ada-1 has another submission of 2026-03-01 10:00 UTC there, and this one of "
        "2026-03-01 10:00 UTC is not newer; --overwrite takes it all the same"
    )
    assert place.read_text() == "first"
    newer = desk.collect(desk.zip(name, content="second", time=(2026, 3, 1, 11, 0, 0)))
    assert newer[0].text.endswith("instead of an older one")
    assert place.read_text() == "second"
    assert not _left(desk.collect(desk.zip(name, content="third"), overwrite=True))
    assert place.read_text() == "third"
    assert desk.there() == {f"ada-1/{EXERCISE}": "03-01 10:00:00"}
    assert not list(desk.submitted.glob("*/.*"))


def test_no_name_leads_out_of_the_folder(desk: Desk) -> None:
    names = (
        "../../evil/02_pages_and_blocks.ipynb",
        f"/etc/{EXERCISE}/x.ipynb",
        f"../{EXERCISE}/../{EXERCISE}/x.ipynb",
        "..\\..\\evil\\02_pages_and_blocks.ipynb",
        "\x1b[2J/02_pages_and_blocks.ipynb",
    )
    for layout in Layout:
        left = _left(desk.collect(desk.zip(*names), layout=layout))
        assert left["../../evil/02_pages_and_blocks.ipynb"].startswith("its path leads out")
        desk.collect(desk.zip(*names), layout=layout, assignment=EXERCISE)
    outside = {path.name for path in desk.folder.iterdir()}
    assert outside <= {"submitted", "download.zip"}
    for student in desk.submitted.glob("*"):
        assert student.name == "2j"


def test_nothing_is_written_through_a_link(desk: Desk) -> None:
    elsewhere = desk.folder / "elsewhere"
    elsewhere.mkdir()
    desk.submitted.mkdir()
    (desk.submitted / "ada-1").symlink_to(elsewhere)
    with pytest.raises(VramlabError, match="is a link"):
        desk.collect(desk.zip("ada_1_50_02_pages_and_blocks.ipynb"))
    assert not list(elsewhere.iterdir())


def test_what_is_no_notebook_is_listed_and_what_systems_leave_is_not(desk: Desk) -> None:
    source = desk.folder_of(
        "ada/02_pages_and_blocks.ipynb",
        "ada/notes.docx",
        "bob/02_pages_and_blocks.py",
        "bob/.DS_Store",
        "__MACOSX/bob/._02_pages_and_blocks.py",
    )
    items = desk.collect(source)
    assert [(item.source, item.is_taken) for item in items] == [
        ("ada/02_pages_and_blocks.ipynb", True),
        ("ada/notes.docx", False),
        ("bob/02_pages_and_blocks.py", False),
    ]
    assert items[2].text.startswith("it is no notebook")
