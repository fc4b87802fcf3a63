"""A new master has the cells that nbgrader and the judge need, and is never overwritten."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest
from nbgrader.nbgraderformat import MetadataValidator

from vramlab_classroom.judge.task import Exercise
from vramlab_classroom.nbgrader.authoring import main, master


def test_each_task_gets_a_question_an_answer_and_a_test(toy: Exercise) -> None:
    notebook = master(toy)
    nbformat.validate(notebook)
    MetadataValidator().validate_nb(notebook)
    ids = [cell.id for cell in notebook.cells]
    assert ids[:5] == ["introduction", "setup", "double-question", "double", "double-test"]
    cells = dict(zip(ids, notebook.cells, strict=True))
    assert cells["double-test"].source == 'check("toy", "double")'
    assert cells["double-test"].metadata.nbgrader.points == 2
    assert cells["double"].source.startswith("def double(size):\n    ### BEGIN SOLUTION")
    assert cells["cause"].source == "### BEGIN SOLUTION\ncause = None\n### END SOLUTION"


def test_a_master_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["authoring", "02_pages_and_blocks"])
    assert main() == 0
    path = tmp_path / "solutions" / "02_pages_and_blocks" / "02_pages_and_blocks.ipynb"
    written = path.read_bytes()
    assert main() == 1
    assert "is there already: it is the master, edit it" in capsys.readouterr().err
    assert path.read_bytes() == written


def test_an_exercise_without_tasks_is_told(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["authoring", "99_nope"])
    assert main() == 2
    assert "write vramlab_course/tasks/ex<name>.py first" in capsys.readouterr().err
