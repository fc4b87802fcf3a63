"""Start the source notebook of an exercise from its tasks.

    python -m vramlab_classroom.nbgrader.authoring 02_pages_and_blocks

writes solutions/02_pages_and_blocks/02_pages_and_blocks.ipynb with a cell for the question, the
answer and the test of each task, marked as nbgrader wants them. It has everything that
tests/course/tasks checks in an exercise; what is left to write is marked with TODO. From then on,
edit the notebook in JupyterLab: an existing one is never overwritten.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from pathlib import Path
from typing import Any

import nbformat

from vramlab_classroom.judge import jobs
from vramlab_classroom.judge.exercises import UnknownExerciseError, find_exercise
from vramlab_classroom.judge.notebooks import TEST_SUFFIX
from vramlab_classroom.judge.task import Diagnose, Exercise, Fix, Task, Workshop, runs_in_torch

BEGIN_SOLUTION, END_SOLUTION = "### BEGIN SOLUTION", "### END SOLUTION"

TODO = "TODO"

MARKS = "Difficulty ●●●○○ (3 of 5) · importance ●●●○○ (3 of 5)"

HINTS = "\n".join(
    f"<details><summary>Hint {number}</summary>\n\n{TODO}\n\n</details>" for number in (1, 2)
)

END = """## Done?

Run everything again from the top (**Kernel → Restart Kernel and Run All Cells**), or press \
**Validate**, or run `vramlab check {number}` in a shell: all three check the notebook as it is \
now, not what you ran an hour ago."""


def master(exercise: Exercise) -> Any:
    """Build the notebook: an introduction, a set-up cell, the cells of each task, and an end."""
    cells = [
        markdown("introduction", _introduction(exercise)),
        code("setup", _setup(exercise), locked=True),
    ]
    for number, task in enumerate(exercise.tasks, 1):
        cells.append(markdown(f"{task.name}-question", _question(number, task)))
        if isinstance(task, Diagnose):
            shown = f'evidence("{exercise.name}", "{task.name}")'
            cells.append(code(f"{task.name}-situation", shown))
        cells += [code(task.name, _stub(task), solution=True), test_cell(exercise, task)]
    cells.append(markdown("end", END.format(number=exercise.name.partition("_")[0])))
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


def _introduction(exercise: Exercise) -> str:
    number, _, words = exercise.name.partition("_")
    minutes = sum(task.minutes for task in exercise.tasks)
    return f"""# Exercise {number}: {words.replace("_", " ")}

{TODO}

- **Takes** about {minutes} minutes: {len(exercise.tasks)} tasks, {exercise.points} points.
- **No GPU needed.** Every answer is compared with what a virtual GPU measures.

Each task has a cell for your answer and a cell below it that checks it. Run the check as often as \
you like. Grading also tries other numbers."""


def _setup(exercise: Exercise) -> str:
    names = "check, evidence" if any(isinstance(t, Diagnose) for t in exercise.tasks) else "check"
    imports = ["import torch", ""] if any(map(runs_in_torch, exercise.tasks)) else []
    return "\n".join([*imports, f"from vramlab_course import {names}", "", "MIB = 2**20"])


def _question(number: int, task: Task) -> str:
    kind = "build" if isinstance(task, Workshop) else type(task).__name__.lower()
    words = task.name.replace("_", " ").capitalize()
    heading = f"{number}. {words} ({kind}, {task.points} points, about {task.minutes} minutes)"
    asked = task.name if _is_value(task) else f"{task.name}({', '.join(_parameters(task))})"
    return f"## {heading}\n\n{MARKS}\n\nWrite `{asked}`: {TODO}\n\n{HINTS}"


def _is_value(task: Task) -> bool:
    return isinstance(task, Diagnose | Fix) and task.is_value


def _stub(task: Task) -> str:
    if _is_value(task):
        return f"{BEGIN_SOLUTION}\n{task.name} = None\n{END_SOLUTION}"
    head = f"def {task.name}({', '.join(_parameters(task))}):"
    return f"{head}\n    {BEGIN_SOLUTION}\n    return None\n    {END_SOLUTION}"


def _parameters(task: Task) -> list[str]:
    """Return the names of the arguments that the learner's function is called with."""
    if isinstance(task, Diagnose):
        return [*jobs.measure(task, task.visible[0])["arguments"]]
    if not isinstance(task, Fix):
        return [*task.visible[0]]
    reference = getattr(task.trial, "reference", None)
    if not callable(reference):
        return []
    named = inspect.signature(reference).parameters.values()
    return [each.name for each in named if each.default is each.empty]


def main() -> int:
    """Run the command line; answer the exit status."""
    parser = argparse.ArgumentParser(prog="python -m vramlab_classroom.nbgrader.authoring")
    parser.add_argument("exercise", help="its name, such as 02_pages_and_blocks")
    try:
        exercise = find_exercise(parser.parse_args().exercise)
    except UnknownExerciseError as error:
        print(f"{error}; write vramlab_course/lessons/l<name>/tasks.py first", file=sys.stderr)
        return 2
    path = Path("solutions", exercise.name, f"{exercise.name}.ipynb")
    if path.exists():
        print(f"{path} exists already: edit it in JupyterLab", file=sys.stderr)
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(master(exercise), path)
    print(f"{path}: replace each {TODO}, then run `make notebooks`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
