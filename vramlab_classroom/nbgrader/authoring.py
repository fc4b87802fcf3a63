"""Starts the master notebook of an exercise from its tasks.

    python -m vramlab_classroom.nbgrader.authoring 02_pages_and_blocks

writes solutions/02_pages_and_blocks/02_pages_and_blocks.ipynb with a cell for the question, the
answer and the test of each task, marked as nbgrader wants them. From then on the notebook is the
master: edit it in JupyterLab. An existing master is never overwritten.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import nbformat

from vramlab_classroom.judge.exercises import UnknownExerciseError, find_exercise
from vramlab_classroom.judge.notebooks import TEST_SUFFIX
from vramlab_classroom.judge.task import Diagnose, Exercise, Fix, Task, Workshop

BEGIN_SOLUTION, END_SOLUTION = "### BEGIN SOLUTION", "### END SOLUTION"

SETUP = """from vramlab_classroom.judge import check

MIB = 2**20"""


def master(exercise: Exercise) -> Any:
    """Build the notebook: an introduction, a set-up cell, and three cells for each task."""
    cells = [
        markdown("introduction", f"# Exercise {exercise.name}"),
        code("setup", SETUP, locked=True),
    ]
    for task in exercise.tasks:
        cells += [
            markdown(f"{task.name}-question", _question(task)),
            code(task.name, _stub(task), solution=True),
            test_cell(exercise, task),
        ]
    notebook = nbformat.v4.new_notebook(
        cells=cells,
        metadata={
            "kernelspec": {
                "display_name": "Python 3 (ipykernel)",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        },
    )
    notebook.nbformat_minor = 5
    return notebook


def markdown(cell_id: str, source: str) -> Any:
    """Make a cell of text."""
    return nbformat.v4.new_markdown_cell(source, id=cell_id)


def code(
    name: str,
    source: str,
    *,
    solution: bool = False,
    locked: bool = False,
    points: int | None = None,
) -> Any:
    """Make a code cell. One that is a solution, locked or worth points is nbgrader's, too."""
    cell = nbformat.v4.new_code_cell(source, id=name)
    if solution or locked:
        cell.metadata["nbgrader"] = {
            "schema_version": 3,
            "grade_id": name,
            "grade": points is not None,
            "locked": locked,
            "solution": solution,
            "task": False,
        }
    if points is not None:
        cell.metadata["nbgrader"]["points"] = points
    return cell


def test_cell(exercise: Exercise, task: Task) -> Any:
    """Make the graded cell of a task."""
    source = f'check("{exercise.name}", "{task.name}")'
    return code(f"{task.name}{TEST_SUFFIX}", source, locked=True, points=task.points)


def _question(task: Task) -> str:
    kind = "build" if isinstance(task, Workshop) else type(task).__name__.lower()
    return f"## {task.name} ({kind}, {task.points} points, about {task.minutes} minutes)"


def _stub(task: Task) -> str:
    if isinstance(task, Diagnose | Fix) and task.is_value:
        return f"{BEGIN_SOLUTION}\n{task.name} = None\n{END_SOLUTION}"
    arguments = "" if isinstance(task, Diagnose | Fix) else ", ".join(task.visible[0])
    head = f"def {task.name}({arguments}):"
    return f"{head}\n    {BEGIN_SOLUTION}\n    return None\n    {END_SOLUTION}"


def main() -> int:
    """Run the command line; answer the exit status."""
    parser = argparse.ArgumentParser(prog="python -m vramlab_classroom.nbgrader.authoring")
    parser.add_argument("exercise", help="its name, such as 02_pages_and_blocks")
    try:
        exercise = find_exercise(parser.parse_args().exercise)
    except UnknownExerciseError as error:
        print(f"{error}; write vramlab_course/tasks/ex<name>.py first", file=sys.stderr)
        return 2
    path = Path("solutions", exercise.name, f"{exercise.name}.ipynb")
    if path.exists():
        print(f"{path} is there already: it is the master, edit it", file=sys.stderr)
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(master(exercise), path)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
