"""A new master has the cells that nbgrader and the judge need, and is never overwritten."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import nbformat
import pytest
from classroom import ROOT
from nbgrader.nbgraderformat import MetadataValidator
from question_texts import HEADING, HINT, MARKS

from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.task import Exercise, Fix
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
    # What a diagnosis is called with is what is observed.
    assert cells["total"].source.startswith("def total(sizes):\n")
    assert cells["total-situation"].source == 'evidence("toy", "total")'


@pytest.mark.parametrize(
    "name", ["02_pages_and_blocks", "12_estimating_large_models", "workshop_c_bucketed_ddp"]
)
def test_a_new_notebook_has_what_those_of_the_course_have(name: str) -> None:
    exercise = find_exercise(name)
    path = ROOT / "solutions" / name / f"{name}.ipynb"
    made, there = (
        {cell.id: cell.source for cell in notebook.cells}
        for notebook in (master(exercise), nbformat.read(path, as_version=4))
    )
    for task in exercise.tasks:
        assert made[f"{task.name}-test"] == there[f"{task.name}-test"]
        if not isinstance(task, Fix) or not task.is_value:
            assert parameters_of(made[task.name]) == parameters_of(there[task.name])
        heading, marks, *_ = made[f"{task.name}-question"].split("\n\n")
        assert HEADING.fullmatch(heading)
        assert MARKS.fullmatch(marks)
        assert len(HINT.findall(made[f"{task.name}-question"])) == 2
    minutes = sum(task.minutes for task in exercise.tasks)
    assert f"**Takes** about {minutes} minutes" in made["introduction"]


def parameters_of(source: str) -> set[str]:
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    first = next(functions)
    return {each.arg for each in first.args.args}


def test_a_master_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["authoring", "02_pages_and_blocks"])
    assert main() == 0
    path = tmp_path / "solutions" / "02_pages_and_blocks" / "02_pages_and_blocks.ipynb"
    written = path.read_bytes()
    assert main() == 1
    assert "exists already: edit it in JupyterLab" in capsys.readouterr().err
    assert path.read_bytes() == written
