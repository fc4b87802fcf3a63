"""What the question of each task says beside its words: points, minutes, marks and folded hints."""

from __future__ import annotations

import re

import nbformat
import pytest
from classroom import ROOT
from question_texts import HEADING, HINT, MARKS

from packages import FOLDERS
from vramlab_classroom.judge.exercises import WORKSHOP, exercise_names, find_exercise
from vramlab_classroom.judge.task import Diagnose, Fix, Task, Workshop
from vramlab_course.course_map import PARTS, PATHS, Part


def cells_of(exercise: str) -> dict[str, str]:
    notebook = nbformat.read(ROOT / "solutions" / exercise / f"{exercise}.ipynb", as_version=4)
    return {cell.id: cell.source for cell in notebook.cells}


def short(exercise: str) -> str:
    """The number of an exercise, or the letter of a workshop."""
    return exercise.removeprefix("workshop_").partition("_")[0]


def questions() -> list[tuple[str, Task, str]]:
    found = []
    for name in exercise_names():
        cells = cells_of(name)
        for task in find_exercise(name).tasks:
            found.append((name, task, cells[f"{task.name}-question"]))
    return found


of_each_question = pytest.mark.parametrize(
    "question", questions(), ids=lambda each: f"{short(each[0])}-{each[1].name}"
)


@of_each_question
def test_a_question_says_what_it_is_worth_and_takes_and_folds_hints(
    question: tuple[str, Task, str],
) -> None:
    exercise, task, text = question
    heading, marks = text.split("\n\n")[:2]
    said = HEADING.fullmatch(heading)
    assert said is not None
    assert (int(said["points"]), int(said["minutes"])) == (task.points, task.minutes)
    assert (said["kind"] in ("fix", "build")) == isinstance(task, Fix)
    assert (said["kind"] == "build") == isinstance(task, Workshop)
    found = MARKS.fullmatch(marks)
    assert found is not None
    assert found["core"].startswith("★") == (task.name in find_exercise(exercise).core)
    # No meaning by symbols alone: the number says the same.
    assert found["difficulty"] == "●" * int(found["d"]) + "○" * (5 - int(found["d"]))
    assert found["importance"] == "●" * int(found["i"]) + "○" * (5 - int(found["i"]))
    hints = [(int(hint["number"]), hint["text"]) for hint in HINT.finditer(text)]
    assert [number for number, _ in hints] == list(range(1, len(hints) + 1))
    assert len(hints) >= 2
    assert text.rstrip().endswith("</details>")  # what is folded comes last


@pytest.mark.parametrize("part", PARTS, ids=lambda part: str(part.number))
def test_each_part_diagnoses_a_program_that_nobody_knows_from_its_snapshot(part: Part) -> None:
    asked = [
        task.name
        for name, task, text in questions()
        if name[:2] in part.lessons and isinstance(task, Diagnose) and "snapshot" in text
    ]
    assert asked


@of_each_question
def test_a_question_with_a_number_or_a_word_for_an_answer_knows_mistakes(
    question: tuple[str, Task, str],
) -> None:
    _, task, _ = question
    assert isinstance(task, Fix) or len(tuple(task.mistakes)) >= 2


def test_each_exercise_has_two_core_tasks_and_those_of_a_weekend_take_about_five_hours() -> None:
    minutes = {}
    for name in exercise_names():
        exercise = find_exercise(name)
        assert len(exercise.core) == (0 if name.startswith(WORKSHOP) else 2)
        minutes[name[:2]] = sum(exercise.task(task).minutes for task in exercise.core)
    weekend = sum(minutes[number] for number in PATHS[0].lessons)
    assert (round(weekend / 60), round(sum(minutes.values()) / 60)) == (5, 19)
    for page in (ROOT / "README.md", FOLDERS["vramlab_course"] / "widgets/course_progress.py"):
        assert "5 hours" in page.read_text()


@pytest.mark.parametrize("exercise", exercise_names())
def test_an_exercise_takes_what_its_tasks_take(exercise: str) -> None:
    introduction = cells_of(exercise)["introduction"]
    minutes = re.search(r"\*\*Takes\*\* about (\d+) minutes", introduction)
    assert minutes is not None
    assert int(minutes[1]) == sum(task.minutes for task in find_exercise(exercise).tasks)
