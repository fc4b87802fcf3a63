"""`vramlab check`: the same verdicts in the shell."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vramlab.cli import main

ROOT = Path(__file__).parents[3]
NAME = "02_pages_and_blocks"


def test_a_solved_exercise_ends_with_status_0(capsys) -> None:
    solution = ROOT / "solutions" / NAME / f"{NAME}.ipynb"
    assert main(["check", "02", "--notebook", str(solution)]) == 0
    printed = capsys.readouterr().out
    assert "reserved_bytes: passed in 6 cases, 4 of 4 points" in printed
    assert printed.endswith(f"{NAME}: 16 of 16 points on the visible cases\n")


def test_a_blank_exercise_ends_with_status_1(
    capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "exercises" / NAME, tmp_path / "exercises" / NAME)
    below = tmp_path / "lessons"
    below.mkdir()
    monkeypatch.chdir(below)  # the notebook is found from any folder of the course
    assert main(["check", NAME]) == 1
    printed = capsys.readouterr().out
    assert printed.count("not answered yet, 0 of") == 5
    assert printed.endswith(f"{NAME}: 0 of 16 points on the visible cases\n")


def test_no_notebook_there_says_where_it_was_looked_for(
    capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", "2"]) == 2
    error = capsys.readouterr().err
    assert f"there is no exercises/{NAME}/{NAME}.ipynb in {tmp_path} or above it" in error
    assert "--notebook" in error


@pytest.mark.parametrize("content", ["", "not JSON", "\xff"])
def test_a_file_that_is_no_notebook_is_told(capsys, tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.ipynb"
    path.write_text(content, encoding="latin-1")
    assert main(["check", "02", "--notebook", str(path)]) == 2
    assert "mine.ipynb is not a notebook: it is not JSON" in capsys.readouterr().err
