"""exercises/ is generated, and a stale file is noticed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from classroom import ROOT

from vramlab_classroom.nbgrader.release import stale

NAME = "02_pages_and_blocks"


@pytest.fixture
def course(tmp_path: Path) -> Path:
    for folder in ("solutions", "exercises"):
        shutil.copytree(ROOT / folder / NAME, tmp_path / folder / NAME)
    (tmp_path / "autograder").mkdir()
    shutil.copy(ROOT / "autograder" / "nbgrader_config.py", tmp_path / "autograder")
    return tmp_path


def test_a_changed_master_makes_its_exercise_stale_until_it_is_released(course: Path) -> None:
    assert stale(course) == []
    master = course / "solutions" / NAME / f"{NAME}.ipynb"
    master.write_text(master.read_text().replace("Exercise 02:", "Exercise two:"))
    assert stale(course) == [NAME]
    assert stale(course, update=True) == [NAME]
    assert stale(course) == []
    assert not (course / "autograder" / "gradebook.db").exists()


def test_nothing_of_the_solutions_is_released(course: Path) -> None:
    released = (course / "exercises" / NAME / f"{NAME}.ipynb").read_text()
    assert "BEGIN SOLUTION" not in released
    assert "free_pieces" not in released
    assert released.count("raise NotImplementedError") == 5
