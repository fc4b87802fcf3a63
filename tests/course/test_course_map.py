"""The map of the course: every lesson is in one part, and paths go through lessons that exist."""

from __future__ import annotations

import pytest
from lesson_parts import LESSONS

from vramlab_course.course_map import PARTS, PATHS, LearningPath, paths_table, stem_of

NUMBERS = [path.stem[:2] for path in LESSONS]


def test_every_lesson_is_in_one_part_in_order() -> None:
    assert [number for part in PARTS for number in part.lessons] == NUMBERS
    assert [part.number for part in PARTS] == list(range(1, len(PARTS) + 1))
    assert [stem for part in PARTS for stem in part.stems()] == [path.stem for path in LESSONS]


def test_paths_go_forward_and_a_weekend_has_eight_lessons() -> None:
    for path in PATHS:
        assert list(path.lessons) == sorted(set(path.lessons) & set(NUMBERS))
    lengths = {path.name: len(path.lessons) for path in PATHS}
    assert lengths["a weekend"] == 8
    assert lengths["the whole"] == len(NUMBERS)


def test_lessons_that_follow_each_other_are_said_as_a_run() -> None:
    table = paths_table([LearningPath("short", "For us.", ("02", "03", "04", "06"))], "lessons/")
    assert table.splitlines()[-1] == (
        "| **short** (4) | For us. | [02](lessons/02_pages_and_blocks.ipynb) to "
        "[04](lessons/04_parameters.ipynb), [06](lessons/06_optimizer_states.ipynb) |"
    )


def test_a_lesson_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 lessons have the number '77'"):
        stem_of("77")
