"""Whose submission a file is, by the names of Canvas, Moodle and folders."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from vramlab_classroom.lms.submission_names import (
    Layout,
    Origin,
    canvas_id,
    find_origins,
)

KNOWN = {"02_pages_and_blocks", "05_one_training_step"}


def _paths(*names: str) -> list[PurePosixPath]:
    return [PurePosixPath(name) for name in names]


def _origin(name: str, layout: Layout) -> Origin | None:
    (origin,) = find_origins(_paths(name), layout, KNOWN)
    return origin


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "lovelaceada_101_5001_02_pages_and_blocks.ipynb",
            Origin("lovelaceada-101", "lovelaceada 101", "02_pages_and_blocks.ipynb", "", "101"),
        ),
        (
            "lovelaceada_LATE_101_5001_02_pages_and_blocks-1.ipynb",
            Origin(
                "lovelaceada-101", "lovelaceada 101", "02_pages_and_blocks-1.ipynb", "", "101", True
            ),
        ),
        (
            # What the student called the file looks like another student's.
            "evilbob_102_5001_lovelaceada_101_5000_02.ipynb",
            Origin("evilbob-102", "evilbob 102", "lovelaceada_101_5000_02.ipynb", "", "102"),
        ),
        ("42_103_5001_x.ipynb", Origin("42-103", "42 103", "x.ipynb", "", "103")),
        (
            "ünalömer2_104_5001_x.ipynb",
            Origin("ünalömer2-104", "ünalömer2 104", "x.ipynb", "", "104"),
        ),
        (
            "LATE_anon_aB3xY_5001_02_x.ipynb",
            Origin("anon_ab3xy", "anon_aB3xY", "02_x.ipynb", "", "anon_aB3xY", True),
        ),
    ],
)
def test_names_that_canvas_gives(name: str, expected: Origin) -> None:
    found = _origin(name, Layout.CANVAS)
    assert found is not None
    assert found.order == 5001
    assert Origin(**{**vars(found), "order": 0}) == expected


def test_the_id_of_a_canvas_student_can_be_made_of_the_gradebooks_row() -> None:
    # Canvas: the sortable name in small letters, with nothing but letters, digits and _.
    assert canvas_id("Lovelace, Ada", "101") == "lovelaceada-101"
    assert canvas_id("Ünal, Ömer 2", "104") == "ünalömer2-104"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("Ada Lovelace_71_assignsubmission_file_/02.ipynb", "02.ipynb"),
        ("Ada Lovelace_71_assignsubmission_file_/work/02.ipynb", "02.ipynb"),
        ("Ada Lovelace_71_assignsubmission_file/02.ipynb", "02.ipynb"),
        ("Ada Lovelace_71_assignsubmission_file_02.ipynb", "02.ipynb"),
        (
            "Ada Lovelace_71_assignsubmission_file_Bob_72_assignsubmission_file_02.ipynb",
            "Bob_72_assignsubmission_file_02.ipynb",
        ),
    ],
)
def test_names_that_moodle_gives(name: str, title: str) -> None:
    assert _origin(name, Layout.MOODLE) == Origin(
        "ada.lovelace", "Ada Lovelace", title, number="71"
    )


def test_folders_of_students() -> None:
    assert _origin("Ada_L/02.ipynb", Layout.FOLDER) == Origin("Ada_L", "Ada_L", "02.ipynb")
    assert _origin("Ada L/02.ipynb", Layout.FOLDER) == Origin("ada.l", "Ada L", "02.ipynb")
    assert _origin("in/ada/02_pages_and_blocks/x.ipynb", Layout.FOLDER) == Origin(
        "ada", "ada", "x.ipynb", assignment="02_pages_and_blocks"
    )
    for name in ("02.ipynb", "a/b/c.ipynb", "02_pages_and_blocks/x.ipynb", "/x.ipynb"):
        origin = _origin(name, Layout.FOLDER)
        assert origin is None or origin.student == ""


def test_nobody_gets_out_of_the_folder() -> None:
    for name in ("../02.ipynb", "../../x/../02_pages_and_blocks/x.ipynb", "/etc/x.ipynb"):
        for layout in Layout:
            origin = _origin(name, layout)
            assert origin is None or origin.student in ("", "etc")


def test_a_folder_around_everything_is_left_out() -> None:
    names = _paths("all/ada_1_2_x.ipynb", "all/bob_3_4_x.ipynb")
    origins = find_origins(names, Layout.CANVAS, KNOWN)
    assert [origin.student for origin in origins if origin] == ["ada-1", "bob-3"]
