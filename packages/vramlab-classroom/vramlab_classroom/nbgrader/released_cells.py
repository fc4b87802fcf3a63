"""The cells of an exercise as they were released, and how a submission gets them back.

Whatever a submission did to nbgrader's cells, afterwards each is there once: with the metadata of
the gradebook, and, where it is locked, with its source. Left to itself, nbgrader gives up on a
notebook, or on the whole class, over a duplicated cell, an edited flag or an old schema version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vramlab_classroom.judge.notebooks import TEST_SUFFIX, Cell, grade_id, is_read_by_hand
from vramlab_classroom.judge.task import Exercise

if TYPE_CHECKING:
    from nbgrader.api import Gradebook


@dataclass(frozen=True)
class ReleasedCell:
    """A cell that nbgrader knows by name. All of it is in the notebook that learners got."""

    name: str
    """nbgrader's name of it."""

    cell_type: str
    source: str
    checksum: str
    """nbgrader's, of the type, the name and the source."""

    locked: bool
    is_answer: bool
    """Whether learners write into it."""

    points: float | None
    """What it is worth; None if it is not graded."""

    @property
    def metadata(self) -> dict[str, Any]:
        """What nbgrader wants under `nbgrader` in the cell's metadata (schema 3)."""
        metadata: dict[str, Any] = {
            "schema_version": 3,
            "grade_id": self.name,
            "cell_type": self.cell_type,
            "checksum": self.checksum,
            "grade": self.points is not None,
            "locked": self.locked,
            "solution": self.is_answer,
            "task": False,
        }
        return metadata if self.points is None else {**metadata, "points": self.points}


def released_cells(
    gradebook: Gradebook, assignment: str, notebook: str
) -> tuple[ReleasedCell, ...]:
    """Read from the gradebook what was released."""
    released = gradebook.find_notebook(notebook, assignment)
    points = {cell.name: cell.max_score for cell in released.grade_cells}
    answers = {cell.name for cell in released.solution_cells}
    return tuple(
        ReleasedCell(
            name=cell.name,
            cell_type=cell.cell_type,
            source=cell.source,
            checksum=cell.checksum,
            locked=cell.locked,
            is_answer=cell.name in answers,
            points=points.get(cell.name),
        )
        for cell in released.source_cells
    )


def changed_since_release(exercise: Exercise, released: Sequence[ReleasedCell]) -> str:
    """Describe what of an exercise's points is another in the gradebook, and what brings it in.

    Returns:
        A sentence; empty if all is as it was released.
    """
    there = {
        cell.name.removesuffix(TEST_SUFFIX): cell.points
        for cell in released
        if cell.points is not None and not is_read_by_hand(cell.name)
    }
    now = {task.name: task.points for task in exercise.tasks}
    differences = [
        f"{name} has {_points(now.get(name))} and was released with {_points(there.get(name))}"
        for name in [*now, *(name for name in there if name not in now)]
        if now.get(name) != there.get(name)
    ]
    if not differences:
        return ""
    return (
        f"{exercise.name} is not what was released: {'; '.join(differences)}. Scores are counted "
        f"as released, until `nbgrader generate_assignment {exercise.name} --force` brings in "
        f"what solutions/{exercise.name} says now"
    )


def _points(points: float | None) -> str:
    return "no cell" if points is None else f"{points:g} points"


def restore(cells: Iterable[Cell], released: Sequence[ReleasedCell]) -> list[Cell]:
    """Give every released cell its metadata, drop that of all others, add those that are missing.

    An answer's cell that lost its metadata needs none: answers are found by what they bind. A
    setup cell stands above all that a learner wrote, so that her own definitions count.

    Args:
        cells: of a submission, in nbformat 4; they are changed.
        released: the cells of the exercise.
    """
    wanted = {cell.name: cell for cell in released}
    restored: list[Cell] = []
    seen: set[str] = set()
    for cell in reversed(list(cells)):  # of two copies, the one further down counts
        name = grade_id(cell)
        cell["metadata"].pop("nbgrader", None)
        if name in wanted and name not in seen:
            seen.add(name)
            _restore_one(cell, wanted[name])
        restored.append(cell)
    restored.reverse()
    taken = {cell.get("id") for cell in restored}
    missing = [cell for cell in released if cell.name not in seen]
    setup = [_new_cell(cell, taken) for cell in missing if cell.locked and cell.points is None]
    tests = [_new_cell(cell, taken) for cell in missing if cell.points is not None]
    return [*setup, *restored, *tests]


def _restore_one(cell: Cell, released: ReleasedCell) -> None:
    cell["metadata"]["nbgrader"] = released.metadata
    if cell["cell_type"] != released.cell_type:
        cell["cell_type"] = released.cell_type
        for field in ("outputs", "execution_count"):
            cell.pop(field, None)
        if released.cell_type == "code":
            cell.pop("attachments", None)
            cell.update(outputs=[], execution_count=None)
    if released.locked:
        cell["source"] = released.source


def _new_cell(released: ReleasedCell, taken: set[Any]) -> Cell:
    cell: Cell = {
        "cell_type": released.cell_type,
        "id": released.name if released.name not in taken else f"{released.name}-restored",
        "metadata": {"nbgrader": released.metadata},
        "source": released.source,
    }
    if released.cell_type == "code":
        cell.update(outputs=[], execution_count=None)
    return cell
