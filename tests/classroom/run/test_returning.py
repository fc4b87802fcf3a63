"""Feedback pages go back to the LMS under the names that it knows."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from vramlab_classroom.lms.collecting import Destination, collect
from vramlab_classroom.lms.returning import feedback_zip

EXERCISE = "02_pages_and_blocks"


@pytest.mark.parametrize(
    "names",
    [
        (f"ada_1_2_{EXERCISE}.ipynb", f"bob_LATE_3_4_{EXERCISE}-1.ipynb"),
        (
            f"Ada_1_assignsubmission_file_/{EXERCISE}.ipynb",
            f"Bob B_2_assignsubmission_file_/{EXERCISE}.ipynb",
        ),
    ],
    ids=["Canvas", "Moodle"],
)
def test_pages_get_the_names_of_the_notebooks(tmp_path: Path, names: tuple[str, ...]) -> None:
    download, upload = tmp_path / "download.zip", tmp_path / "upload.zip"
    with zipfile.ZipFile(download, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    collect(download, Destination(tmp_path / "submitted", {EXERCISE}, {}))
    students = sorted(path.name for path in (tmp_path / "submitted").iterdir())
    page = tmp_path / "feedback" / students[0] / EXERCISE / f"{EXERCISE}.html"
    page.parent.mkdir(parents=True)
    page.write_text("well done")
    items = feedback_zip(download, upload, tmp_path / "feedback", {EXERCISE})
    with zipfile.ZipFile(upload) as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    assert packed == {names[0].replace(".ipynb", ".html"): b"well done"}
    assert [(item.source, item.is_taken, item.text) for item in items] == [
        (names[0], True, f"{students[0]}, {EXERCISE}"),
        (names[1], False, f"there is no feedback for {students[1]} on {EXERCISE}"),
    ]


def test_names_that_lead_elsewhere_are_not_packed(tmp_path: Path) -> None:
    download, upload = tmp_path / "download.zip", tmp_path / "upload.zip"
    with zipfile.ZipFile(download, "w") as archive:
        archive.writestr(f"../ada/{EXERCISE}/{EXERCISE}.ipynb", "{}")
    page = tmp_path / "feedback" / "ada" / EXERCISE / f"{EXERCISE}.html"
    page.parent.mkdir(parents=True)
    page.write_text("well done")
    feedback_zip(download, upload, tmp_path / "feedback", {EXERCISE})
    with zipfile.ZipFile(upload) as archive:
        assert not any(".." in name for name in archive.namelist())
