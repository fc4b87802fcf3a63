"""Predictions are known by their question: a lesson asks each one once."""

from __future__ import annotations

from pathlib import Path

import pytest
from lesson_parts import LESSONS, read_lesson

from vramlab_course.widgets.course_progress import questions_in


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_asks_nothing_twice(path: Path) -> None:
    cells = [cell for cell in read_lesson(path).cells if cell.cell_type == "code"]
    asking = (cell.source for cell in cells if "predict(" in cell.source)
    questions = [question for source in asking for question in questions_in(source)]
    assert questions
    assert [each for each in questions if questions.count(each) > 1] == []
