"""Predictions: each is asked once, and the notebook's source does not give its answer away."""

from __future__ import annotations

from pathlib import Path

import pytest
from lesson_parts import LESSONS, code_cells, read_lesson

from vramlab.units import MIB
from vramlab_course.widgets.course_progress import keys_in
from vramlab_course.widgets.guesses import Counters, Guess, likely_mistake
from vramlab_course.widgets.questions import find, keys


def keys_of(path: Path) -> list[str]:
    """The keys of a lesson's predictions."""
    sources = (cell.source for cell in code_cells(read_lesson(path).cells))
    return [key for source in sources if "predict(" in source for key in keys_in(source)]


def test_every_prediction_is_asked_once_by_its_lesson() -> None:
    by_lesson = {path.stem[:2]: keys_of(path) for path in LESSONS}
    assert all(by_lesson.values())
    assert {key[:2] for number in by_lesson for key in by_lesson[number]} == set(by_lesson)
    assert sorted(key for each in by_lesson.values() for key in each) == sorted(keys())


def test_no_notebook_shows_hints_or_mistakes() -> None:
    sources = {
        f"{path.stem}, {cell.id}": cell.source
        for path in LESSONS
        for cell in code_cells(read_lesson(path).cells)
    }
    shown = ("hint=", "mistakes=")
    assert [name for name, source in sources.items() if any(each in source for each in shown)] == []


@pytest.mark.parametrize("number", sorted({key[:2] for key in keys()}))
def test_questions_lead_to_the_answer(number: str) -> None:
    """The record knows a question by its text, and wrong guesses are answered with a hint."""
    questions = [find(key) for key in keys() if key.startswith(number)]
    texts = [question.text for question in questions]
    assert len(set(texts)) == len(texts)
    for question in questions:
        assert question.hints
        assert [hint for hint in question.hints if not hint.endswith("?")] == []
        assert question.mistakes


@pytest.mark.parametrize(
    ("key", "guess", "measured_mib", "feedback"),
    [
        # VGG16's outputs are 58.12 MiB for one image; 2 x 58.12 = 116.24.
        ("04.image", "116.24", 69.4, "You doubled the outputs."),
        ("04.image", "58.12", 69.4, "You counted the outputs alone."),
        # 40 + 40 + 80 + 80 = 240, and the allocator happens to have reserved 242 MiB.
        ("05.forward", "240", 168.125, "You counted y twice."),
        # Gradients of 4, 4 and 8 MiB: (4 + 4 + 8 + 8) - (8 + 4) = 12; without the new one, 4.
        ("13.second", "4", 12.0, "You left out the last layer's new gradient."),
    ],
)
def test_natural_answers_are_named(
    key: str, guess: str, measured_mib: float, feedback: str
) -> None:
    question = find(key)
    measured_bytes = measured_mib * MIB
    counters = Counters(0, round(measured_bytes), round(measured_bytes), 242 * MIB)
    mistakes = question.mistakes_with({})
    said = likely_mistake(Guess.read(guess, question.unit), measured_bytes, mistakes, counters)
    assert said is not None
    assert said.startswith(feedback)
