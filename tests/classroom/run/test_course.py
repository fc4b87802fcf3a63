"""Where a course is, and what its settings say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vramlab_classroom.nbgrader.course import find_course

ROOT = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "autograder" / "submitted" / "ada").mkdir(parents=True)
    shutil.copy(ROOT / "autograder" / "nbgrader_config.py", tmp_path / "autograder")
    return tmp_path


@pytest.fixture(autouse=True)
def _no_gradebook_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VRAMLAB_GRADEBOOK", raising=False)


@pytest.mark.parametrize("start", [".", "autograder", "autograder/submitted/ada"])
def test_it_is_found_from_below(root: Path, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / start)
    course = find_course()
    assert course.root == root
    assert course.submitted == root / "autograder" / "submitted"
    assert course.autograded == root / "autograder" / "autograded"
    assert course.feedback == root / "autograder" / "feedback"
    assert course.solutions == root / "solutions"
    assert course.seed_file == root / "autograder" / "hidden_seed.txt"
    assert course.db_url == f"sqlite:///{root}/autograder/gradebook.db"


def test_the_gradebook_can_be_elsewhere(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMLAB_GRADEBOOK", "sqlite:////elsewhere/one.db")
    assert find_course(root).db_url == "sqlite:////elsewhere/one.db"
    assert find_course(root, db_url="postgresql://two/db").db_url == "postgresql://two/db"
