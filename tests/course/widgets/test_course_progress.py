"""The start page: what is done, what is begun, and what comes next on each path."""

from __future__ import annotations

from pathlib import Path

import pytest

from vramlab_classroom.judge.exercises import find_exercise
from vramlab_course.course_map import PARTS, PATHS
from vramlab_course.notebooks import installed_notebooks
from vramlab_course.widgets import checked, course_progress
from vramlab_course.widgets.course_progress import StartPage, next_on, progress_of, workshops_of
from vramlab_course.widgets.prediction_record import PredictionOutcome, PredictionRecord

COURSE = installed_notebooks()
LESSONS = [number for part in PARTS for number in part.lessons]
STEM = "02_pages_and_blocks"
WEEKEND = PATHS[0]


@pytest.fixture
def record(tmp_path: Path) -> PredictionRecord:
    return PredictionRecord(tmp_path / "predictions.json")


def answer(record: PredictionRecord, question: str) -> None:
    record.add(PredictionOutcome(STEM, question, None, "512 B", 0, "2026-11-22"))


def test_a_lesson_is_done_when_its_questions_are_decided_and_its_tasks_solved(
    record: PredictionRecord,
) -> None:
    before = progress_of(record, ["02"], COURSE)["02"]
    assert (before.answered, before.solved, before.mark) == (0, 0, "○")
    _, questions = course_progress._read_lesson(COURSE, f"lessons/{STEM}.ipynb")
    assert before.asked == len(questions) == 4  # of the first part alone
    answer(record, questions[0])
    assert progress_of(record, ["02"], COURSE)["02"].mark == "◐"
    for question in questions[1:]:
        answer(record, question)
    read = progress_of(record, ["02"], COURSE)["02"]
    assert read.is_read
    assert not read.is_done
    for task in find_exercise(STEM).tasks:
        record.add_solved(STEM, task.name)
    done = progress_of(record, ["02"], COURSE)["02"]
    assert (before.core_solved, done.core_solved) == (0, 2)
    assert done.words == "4 of 4 predictions, 5 of 5 tasks, ★ 2 of 2"
    assert (done.mark, done.solved) == ("●", len(find_exercise(STEM).tasks))


def test_what_comes_next_is_the_first_of_a_path_that_is_not_done(record: PredictionRecord) -> None:
    progress = progress_of(record, LESSONS, COURSE)
    following = next_on(WEEKEND, progress)
    assert following is not None
    assert following.stem == STEM
    done = {number: progress["02"].__class__("x", "X", 0, 0, 0, 0) for number in LESSONS}
    assert next_on(WEEKEND, done) is None


def test_the_page_has_every_path_lesson_and_workshop_and_where_it_is_kept(
    record: PredictionRecord,
) -> None:
    record.add_solved(STEM, "block_bytes")
    workshops = workshops_of(record, COURSE)
    page = StartPage(progress_of(record, LESSONS, COURSE), record.path, workshops)
    html = page._repr_html_()
    for path in PATHS:
        assert f"<strong>{path.name}</strong>" in html
    for part in PARTS:
        for stem in part.stems():
            assert f'href="lessons/{stem}.ipynb"' in html
            assert (COURSE / "exercises" / stem / f"{stem}.ipynb").is_file()
    for workshop in workshops:
        assert f'href="exercises/{workshop.stem}/{workshop.stem}.ipynb"' in html
    assert str(record.path) in html
    assert (
        f"Lessons done: 0 of {len(LESSONS)}. Predictions made or skipped: 0. Tasks solved: 1."
    ) in str(page)
    assert "a weekend: 0 of 8, next: 02 · Pages and blocks" in str(page)


def test_a_workshop_has_its_mark_and_the_lessons_that_it_goes_on_from(
    record: PredictionRecord,
) -> None:
    stem = "workshop_b_checkpoint"
    first, *others = (task.name for task in find_exercise(stem).tasks)
    marks = []
    for solved in ([], [first], others):
        for name in solved:
            record.add_solved(stem, name)
        (workshop,) = (each for each in workshops_of(record, COURSE) if each.stem == stem)
        marks.append(workshop.mark)
    assert marks == ["○", "◐", "●"]
    assert workshop.lessons == "08, 14"
    html = StartPage(progress_of(record, LESSONS, COURSE), record.path, [workshop])._repr_html_()
    assert "after lessons 08, 14" in html


def test_the_notebook_shows_it_and_keeps_no_output() -> None:
    import nbformat

    notebook = nbformat.read(COURSE / "start.ipynb", as_version=4)
    nbformat.validate(notebook)
    (code,) = (cell for cell in notebook.cells if cell.cell_type == "code")
    assert code.source.endswith("start_page()")
    assert (code.outputs, code.execution_count) == ([], None)


# ---- What check() notes ----


def test_a_solved_task_is_noted_once_and_predictions_stay(record: PredictionRecord) -> None:
    answer(record, "Peak?")
    assert record.add_solved(STEM, "block_bytes") == ""
    assert record.add_solved(STEM, "block_bytes") == ""
    assert [(each.exercise, each.task) for each in record.solved_tasks()] == [(STEM, "block_bytes")]
    answer(record, "More?")
    assert len(record.outcomes()) == 2
    assert len(record.solved_tasks()) == 1


def test_check_notes_what_a_person_has_solved(
    record: PredictionRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[tuple[str, str]] = []
    monkeypatch.setattr(checked.judge, "check", lambda *names: judged.append(names))
    monkeypatch.setattr(checked, "own_record", lambda: record)
    checked.check(STEM, "block_bytes")  # a program runs this
    assert record.solved_tasks() == []
    monkeypatch.setattr(checked.person, "is_here", lambda: True)
    checked.check(STEM, "block_bytes")
    assert [each.task for each in record.solved_tasks()] == ["block_bytes"]
    assert judged == [(STEM, "block_bytes")] * 2
