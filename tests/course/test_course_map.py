"""The map of the course: every lesson is in one part, and paths go through lessons that exist."""

from __future__ import annotations

from lesson_parts import LESSONS

from vramlab_course.course_map import PARTS, PATHS

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
    assert lengths["the whole course"] == len(NUMBERS)
