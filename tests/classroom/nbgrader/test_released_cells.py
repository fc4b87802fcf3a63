"""A submission gets its released cells back, and a release that is out of date is noticed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.nbgrader.released_cells import ReleasedCell, changed_since_release, restore

SETUP = ReleasedCell("setup", "code", "MIB = 2**20", "1", True, False, None)
ANSWER = ReleasedCell("double", "code", "raise NotImplementedError", "2", False, True, None)
TEST = ReleasedCell("double-test", "code", "check()", "3", True, False, 2.0)
RELEASED = [SETUP, ANSWER, TEST]


def cell(name: str, source: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": name,
        "metadata": {"nbgrader": {"grade_id": name}},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


def test_a_deleted_setup_cell_comes_first_and_a_deleted_test_last() -> None:
    own = cell("double", "def double(size):\n    return 2 * size * MIB")
    restored = restore([own], RELEASED)
    assert [each["source"] for each in restored] == [SETUP.source, own["source"], TEST.source]
    assert restored[0]["metadata"]["nbgrader"]["locked"] is True


def test_an_edited_setup_cell_is_as_it_was() -> None:
    restored = restore([cell("setup", "MIB = 10**6"), cell("double", "2")], RELEASED)
    assert restored[0]["source"] == SETUP.source


def test_an_answer_that_was_deleted_stays_away() -> None:
    assert [each["id"] for each in restore([], RELEASED)] == ["setup", "double-test"]


def released(points: dict[str, float]) -> list[ReleasedCell]:
    return [replace(TEST, name=f"{name}-test", points=worth) for name, worth in points.items()]


def test_a_release_of_today_says_nothing() -> None:
    exercise = find_exercise("02")
    points = {task.name: float(task.points) for task in exercise.tasks}
    assert changed_since_release(exercise, [SETUP, ANSWER, *released(points)]) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"block_bytes": 1.5}, "block_bytes has 2 points and was released with 1.5 points"),
        ({"block_bytes": None}, "block_bytes has 2 points and was released with no cell"),
        ({"pages": 3.0}, "pages has no cell and was released with 3 points"),
    ],
)
def test_other_points_are_told_with_the_command_that_brings_them_in(
    changes: dict[str, float | None], said: str
) -> None:
    exercise = find_exercise("02")
    points = {task.name: float(task.points) for task in exercise.tasks} | changes
    kept = {name: worth for name, worth in points.items() if worth is not None}
    told = changed_since_release(exercise, released(kept))
    assert f": {said}." in told
    assert "nbgrader generate_assignment 02_pages_and_blocks" in told
