"""Which cells of an exercise notebook are what.

An answer's cell carries the task's name as its nbgrader id, the test below it that name with
`-test` at its end. A graded cell of another name is an answer that a human reads. Works on anything
that has nbformat's shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

TEST_SUFFIX = "-test"
READ_BY_HAND = "to be read, and given points by hand"
"""Why an answer has no score yet that no test follows."""

Cell = dict[str, Any]


def grade_id(cell: Cell) -> str | None:
    """Return nbgrader's name of a cell, if it has one."""
    name = cell["metadata"].get("nbgrader", {}).get("grade_id")
    return name if isinstance(name, str) else None


def tested_task(cell: Cell) -> str | None:
    """Return the name of the task that a cell tests, if it tests one."""
    name = grade_id(cell)
    if cell["cell_type"] == "code" and name and name.endswith(TEST_SUFFIX):
        return name.removesuffix(TEST_SUFFIX)
    return None


def is_read_by_hand(name: str) -> bool:
    """Return whether a graded cell waits for a human, by its name: whatever is no test does."""
    return not name.endswith(TEST_SUFFIX)


def tasks_with_cells(notebook: Mapping[str, Any]) -> Iterator[tuple[str, Cell, list[str]]]:
    """Yield each tested task, its test cell, and the sources of the code cells above that."""
    above: list[str] = []
    for cell in notebook["cells"]:
        task = tested_task(cell)
        if task is not None:
            yield task, cell, list(above)
        elif cell["cell_type"] == "code":
            above.append(cell["source"])


def cells_of_answers(notebook: Mapping[str, Any], tasks: Iterable[str]) -> dict[str, list[str]]:
    """Give, for each task, the sources of the code cells that its answer is looked for in.

    Those above its test; all, if its test is not there: that is no reason not to judge an answer.
    """
    above_test = {task: above for task, _, above in tasks_with_cells(notebook)}
    every = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return {task: above_test.get(task, every) for task in tasks}
