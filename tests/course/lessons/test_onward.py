"""What goes on from a lesson stands at its end, as the map of the course has it."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from lesson_parts import LESSONS, main_path, read_lesson

from vramlab_course.course_map import ONWARD, PARTS, onward_line, stem_of

SOLUTIONS = Path(__file__).resolve().parents[3] / "solutions"


def title(notebook: Path) -> str:
    opening: str = nbformat.read(notebook, as_version=nbformat.NO_CONVERT).cells[0].source
    return opening.partition("\n")[0].removeprefix("# ")


WORKSHOPS = sorted(SOLUTIONS.glob("workshop_*/*.ipynb"))
MODERN = PARTS[-1].lessons
EARLIER = [path for path in LESSONS if path.stem[:2] not in MODERN]
TITLES = {path.stem: title(path) for path in (*LESSONS, *WORKSHOPS)}


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_says_what_goes_on_from_it(path: Path) -> None:
    end = main_path(read_lesson(path))[-1].source
    line = onward_line(path.stem[:2], TITLES)
    said = [each for each in end.splitlines() if each.startswith("**Going on from here:**")]
    assert said == ([line] if line else [])


@pytest.mark.parametrize("path", EARLIER, ids=lambda path: path.stem)
def test_every_earlier_lesson_leads_on(path: Path) -> None:
    assert ONWARD.get(path.stem[:2]), "say in course_map.ONWARD what goes on from it"


def test_every_workshop_is_led_to_and_every_way_goes_forward() -> None:
    led_to = {further for ways in ONWARD.values() for further in ways}
    assert {name for name in led_to if not name.isdecimal()} == {path.stem for path in WORKSHOPS}
    later = [(number, way) for number, ways in ONWARD.items() for way in ways if way.isdecimal()]
    assert [pair for pair in later if pair[0] >= pair[1]] == []
    assert all(stem_of(way) for _, way in later)
