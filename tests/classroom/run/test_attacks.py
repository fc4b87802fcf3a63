"""A class of attackers, graded by `vramlab grade`: no unearned point, and everybody else graded.

Their notebooks are in `tests/support/hostile.py`; what they do to files and folders is
here. `test_escapes.py` goes on from where an answer would have broken out of its language.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import inline_workers
import nbformat
import pytest
from course_folder import EXERCISE, gradebook_of, make_course, notebook, submit
from hostile import ALL, ATTACKS, BROKEN

from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.nbgrader.course import Course, find_course
from vramlab_classroom.run import run
from vramlab_classroom.run.run import ClassOutcome, Options, grade

pytestmark = pytest.mark.long

FULL = {task.name: task.points for task in find_exercise(EXERCISE).tasks}
NOTHING: dict[str, float | None] = dict.fromkeys(FULL)
HONEST = ("0 before", "Zoë 李 🎓 'x'; --", "zz after")
NOTEBOOK = f"{EXERCISE}.ipynb"

RETURNED = ("climbs_out_of_the_namespace", "link_to_the_gradebook", "says_what_no_file_can_hold")
"""Students who get a feedback page: making one for each takes as long as all the rest."""


def flat(original: dict) -> dict:
    """Copy a notebook with every source as one text, as the attacks expect it."""
    copied = json.loads(json.dumps(original))
    for cell in copied["cells"]:
        cell["source"] = "".join(cell["source"])
    return copied


SOLUTION, RELEASED = flat(notebook()), flat(notebook("exercises"))

# What a student's folder may contain instead of a notebook, and what teacher and student see.

Trick = Callable[[Path, Course], object]
TRICKS: dict[str, tuple[Trick, str]] = {}


def trick(told: str) -> Callable[[Trick], Trick]:
    def register(function: Trick) -> Trick:
        TRICKS[function.__name__] = (function, told)
        return function

    return register


@trick(f"{NOTEBOOK} is a link to somewhere else.")
def link_to_the_gradebook(folder: Path, course: Course) -> None:
    (folder / NOTEBOOK).symlink_to(course.root / "autograder" / "gradebook.db")


@trick(f"{NOTEBOOK} is a link to somewhere else.")
def link_to_the_solution(folder: Path, course: Course) -> None:
    (folder / NOTEBOOK).symlink_to(course.solutions / EXERCISE / NOTEBOOK)


@trick(f"{NOTEBOOK} is a link to somewhere else.")
def link_to_somebody_elses(folder: Path, course: Course) -> None:
    (folder / NOTEBOOK).symlink_to(course.submitted / HONEST[0] / EXERCISE / NOTEBOOK)


@trick(f"{NOTEBOOK} is not a file.")
def pipe_without_end(folder: Path, course: Course) -> None:
    os.mkfifo(folder / NOTEBOOK)


@trick(f"{NOTEBOOK} is not a file.")
def folder_of_that_name(folder: Path, course: Course) -> None:
    (folder / NOTEBOOK).mkdir()


@trick(f"{NOTEBOOK} has 1099511627776 bytes; up to 33554432 are read.")
def a_terabyte(folder: Path, course: Course) -> None:
    (folder / NOTEBOOK).touch()
    os.truncate(folder / NOTEBOOK, 2**40)  # takes no room on the disk


@trick("Its cells have 3000000 characters; up to 2000000 are read.")
def a_book(folder: Path, course: Course) -> None:
    content = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("x" * 3_000_000)])
    (folder / NOTEBOOK).write_text(nbformat.writes(content))


@trick("It has 3000 cells; up to 2000 are read.")
def very_many_cells(folder: Path, course: Course) -> None:
    cells = [nbformat.v4.new_code_cell() for _ in range(3000)]
    (folder / NOTEBOOK).write_text(nbformat.writes(nbformat.v4.new_notebook(cells=cells)))


@trick(f"There is no notebook {NOTEBOOK}; there is 'mine.ipynb'.")
def another_name(folder: Path, course: Course) -> None:
    (folder / "mine.ipynb").write_text("{}")


@trick("It is not a notebook: it is not text in UTF-8.")
def another_encoding(folder: Path, course: Course) -> None:
    (folder / NOTEBOOK).write_text(json.dumps(SOLUTION), encoding="utf-16")


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Course, ClassOutcome]:
    """Grade everybody, in the best sandbox that there is here."""
    folder = make_course(tmp_path_factory.mktemp("class"))
    course = find_course(folder)
    for student in HONEST:
        submit(folder, student, SOLUTION)
    for name, (attack, _) in ATTACKS.items():
        made = attack(SOLUTION, RELEASED)
        submit(folder, name, made.encode() if isinstance(made, str) else made)
    for name, text in BROKEN.items():
        submit(folder, name, text.encode())
    for name, (play, _) in TRICKS.items():
        place = submit(folder, name, b"")
        (place / NOTEBOOK).unlink()
        play(place, course)
    (course.submitted / "link_of_a_student").symlink_to(course.submitted / HONEST[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("VRAMLAB_GRADEBOOK", raising=False)
        patch.setattr(run, "Workers", inline_workers.InlineWorkers)
        patch.setattr("vramlab_classroom.judge.job_pool.ANSWER_SECONDS", 2)
        outcome = grade(course, Options(feedback=False))
        grade(course, Options(students=RETURNED))
    return course, outcome


def scores(course: Course) -> dict[str, dict[str, float | None]]:
    return {
        name.removesuffix(f" {EXERCISE}"): {
            cell.removesuffix("-test"): auto for cell, (auto, _, _) in entry["scores"].items()
        }
        for name, entry in gradebook_of(course).items()
    }


def page(course: Course, student: str) -> str:
    return (course.feedback / student / EXERCISE / f"{EXERCISE}.html").read_text()


def test_everybody_else_is_graded(graded: tuple[Course, ClassOutcome]) -> None:
    found = scores(graded[0])
    assert {student: found[student] for student in HONEST} == dict.fromkeys(HONEST, FULL)


def test_no_point_is_unearned_and_none_is_lost(graded: tuple[Course, ClassOutcome]) -> None:
    found = scores(graded[0])
    expected = {
        name: {task: 0 if task in loses else points for task, points in FULL.items()}
        for name, (_, loses) in ATTACKS.items()
    }
    assert {name: found[name] for name in ATTACKS} == expected


def test_what_cannot_be_graded_is_no_zero(graded: tuple[Course, ClassOutcome]) -> None:
    found = scores(graded[0])
    ungraded = [*BROKEN, *TRICKS]
    assert {name: found[name] for name in ungraded} == dict.fromkeys(ungraded, NOTHING)


def test_the_teacher_is_told_of_these_and_no_others(graded: tuple[Course, ClassOutcome]) -> None:
    _, outcome = graded
    told = {each.student: each.reason for each in outcome.attention}
    assert set(told) == {*BROKEN, *TRICKS}
    assert {name: told[name] for name in TRICKS} == {
        name: text for name, (_, text) in TRICKS.items()
    }
    assert [stray.path.name for stray in outcome.strays] == ["link_of_a_student"]


@pytest.mark.parametrize("name", [*BROKEN, *TRICKS])
def test_the_student_is_told_why(graded: tuple[Course, ClassOutcome], name: str) -> None:
    course, outcome = graded
    (reason,) = (each.reason for each in outcome.attention if each.student == name)
    returned = json.loads((course.autograded / name / EXERCISE / NOTEBOOK).read_text())
    text = "".join("".join(cell["source"]) for cell in returned["cells"])
    assert "This submission could not be graded" in text
    assert reason in text


def test_that_is_in_the_feedback(graded: tuple[Course, ClassOutcome]) -> None:
    told = page(graded[0], "link_to_the_gradebook")
    assert f"{NOTEBOOK} is a link to somewhere else." in told
    assert "(Score: not graded / 16.0)" in told
    assert "Score: 0.0" not in told


def test_nothing_that_a_learner_wrote_runs_in_the_page(graded: tuple[Course, ClassOutcome]) -> None:
    told = page(graded[0], "says_what_no_file_can_hold")
    assert "&lt;script&gt;alert(1)" in told
    assert "<script>alert(1)" not in told
    assert "\x1b" not in told


@pytest.mark.parametrize(
    ("student", "task", "told"),
    [
        ("measures_instead_of_predicting", "block_bytes", "vramlab is not there for an answer"),
        ("equals_everything", "block_bytes", "block_bytes gave 0 (Anything); it should be an int."),
        ("reads_the_seed", "segment_bytes", "Operation not permitted: '/tmp/hidden_seed.txt'"),
        ("forks_on", "segment_bytes", "PermissionError: [Errno 1] Operation not permitted"),
        ("exits_in_the_answer", "segment_bytes", "SystemExit"),
        ("never_ends", "segment_bytes", "did not end within 2 seconds"),
        ("takes_all_memory", "segment_bytes", "MemoryError"),
        ("repair_replaces_the_comparison", "row_norms", "may not change the attributes"),
        ("test_cells_deleted", "block_bytes", "not answered yet"),
    ],
)
def test_the_verdict_tells_what_was_wrong(
    graded: tuple[Course, ClassOutcome], student: str, task: str, told: str
) -> None:
    notebook = json.loads((graded[0].autograded / student / EXERCISE / NOTEBOOK).read_text())
    (test,) = (cell for cell in notebook["cells"] if cell["id"] == f"{task}-test")
    assert told in json.dumps(test["outputs"])


def test_nobody_climbed_out(graded: tuple[Course, ClassOutcome]) -> None:
    assert not Path("/tmp/climbed-out").exists()


def test_the_attacks_are_about_the_tasks_there_are() -> None:
    assert set(FULL) == ALL
