"""What a run does with what the workers send back: all of it but the marking is real here."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import inline_workers
import pytest
from course_folder import EXERCISE, gradebook_of, make_course, notebook, submit
from nbgrader.api import Gradebook
from warm_python import warm_classroom

from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.nbgrader.course import find_course
from vramlab_classroom.run import gradebook_writer
from vramlab_classroom.run.cluster import WorkerDied
from vramlab_classroom.run.gradebook_writer import GradebookError
from vramlab_classroom.run.journal import Journal
from vramlab_classroom.run.needs_review import Attention
from vramlab_classroom.run.run import ClassOutcome, Options, grade
from vramlab_classroom.run.worker import MarkingConditions, MarkingWork, OtherVersionsError

pytestmark = pytest.mark.long

POINTS = {f"{task.name}-test": task.points for task in find_exercise(EXERCISE).tasks}
SUPPORT = Path(inline_workers.__file__).parent


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    inline_workers.install(monkeypatch)
    monkeypatch.delenv("VRAMLAB_GRADEBOOK", raising=False)


@pytest.fixture(scope="module")
def graded_empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course whose gradebook knows the exercise: making one takes longest of all."""
    folder = make_course(tmp_path_factory.mktemp("course"))
    submit(folder, "first", notebook())
    with pytest.MonkeyPatch.context() as patch:
        inline_workers.install(patch)
        grade(find_course(folder), Options(sandbox="limits"))
    return folder


@pytest.fixture
def folder(graded_empty: Path, tmp_path: Path) -> Path:
    """A course where one student, called first, is graded already."""
    return Path(shutil.copytree(graded_empty, tmp_path / "course"))


def run(folder: Path, **options: object) -> ClassOutcome:
    return grade(find_course(folder), Options(sandbox="limits", **options))  # type: ignore[arg-type]


def scores(folder: Path, student: str) -> dict[str, float | None]:
    found = gradebook_of(folder)[f"{student} {EXERCISE}"]["scores"]
    return {cell: auto for cell, (auto, _, _) in found.items()}


def page(folder: Path, student: str) -> Path:
    return folder / "autograder" / "feedback" / student / EXERCISE / f"{EXERCISE}.html"


def test_a_submission_ends_in_gradebook_autograded_and_feedback(folder: Path) -> None:
    assert scores(folder, "first") == POINTS
    assert page(folder, "first").read_text() == "<html>first</html>"
    autograded = folder / "autograder" / "autograded" / "first" / EXERCISE
    assert {path.name for path in autograded.iterdir()} == {f"{EXERCISE}.ipynb", "timestamp.txt"}
    assert "passed in 1 case" in (autograded / f"{EXERCISE}.ipynb").read_text()
    found = gradebook_of(folder)[f"first {EXERCISE}"]
    assert found["timestamp"] == "2026-01-01 10:00:00"


def test_nbgraders_own_autograde_enters_the_same(folder: Path) -> None:
    # The judge's verdicts on the solution are those of `mark_by_name`: everything passes.
    from nbgrader.converters import Autograde
    from nbgrader.coursedir import CourseDirectory

    ours = gradebook_of(folder)
    course = find_course(folder)
    course.config.CourseDirectory.assignment_id = EXERCISE
    course.config.Autograde.force = True
    passed = {verdict.task: verdict for verdict in _marked(folder, "first").verdicts}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "vramlab_classroom.nbgrader.nbgrader_steps.shared_judge",
            lambda seed, command: _Judge(passed),
        )
        Autograde(coursedir=CourseDirectory(config=course.config), config=course.config).start()
    assert gradebook_of(folder) == ours


class _Judge:
    def __init__(self, verdicts: dict) -> None:
        self._verdicts = verdicts

    def judge_all(self, exercise: object, cells: object, rights: object) -> dict:
        return self._verdicts


def _marked(folder: Path, student: str):
    with Journal(folder / "autograder" / "journal.db") as journal:
        entry = journal.latest(student, EXERCISE)
        assert entry is not None
        return journal.marked(entry.number)


def test_a_second_run_grades_what_is_new_or_changed(folder: Path) -> None:
    submit(folder, "second", notebook())
    outcome = run(folder)
    assert (outcome.graded, outcome.kept) == (1, 1)
    assert inline_workers.MARKED == ["second"]
    submit(folder, "first", notebook("exercises"))
    outcome = run(folder)
    assert (outcome.graded, outcome.kept) == (1, 1)
    assert inline_workers.MARKED == ["second", "first"]
    assert not outcome.needs_human


def test_a_changed_task_is_graded_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramlab_classroom.run.run.fingerprint", lambda *facts: "changed")
    assert run(folder).graded == 1
    assert run(folder).kept == 1


def test_a_later_time_of_the_same_notebook_is_entered_but_not_marked(folder: Path) -> None:
    place = submit(folder, "first", notebook())
    (place / "timestamp.txt").write_text("2026-02-02 10:00:00 UTC")
    assert run(folder).graded == 1
    assert inline_workers.MARKED == []
    assert gradebook_of(folder)[f"first {EXERCISE}"]["timestamp"] == "2026-02-02 10:00:00"


def test_a_lost_gradebook_is_filled_from_the_journal(folder: Path) -> None:
    before = gradebook_of(folder)
    (folder / "autograder" / "gradebook.db").unlink()
    assert run(folder).graded == 1
    assert inline_workers.MARKED == []
    assert gradebook_of(folder) == before


def test_what_cannot_be_graded_has_no_score_and_is_listed(folder: Path) -> None:
    submit(folder, "broken", b"{")
    submit(folder, "open", notebook())
    submit(folder, "crash", notebook())
    place = submit(folder, "gone", b"")
    (place / f"{EXERCISE}.ipynb").unlink()
    (place / f"{EXERCISE}.ipynb").symlink_to(folder / "autograder" / "gradebook.db")
    outcome = run(folder)
    assert outcome.graded == 4
    assert outcome.needs_human
    reasons = {each.student: (each.about, each.reason) for each in outcome.attention}
    assert reasons.pop("broken")[1].startswith("It is not a notebook: it is not JSON")
    assert reasons == {
        "crash": ("", "It could not be graded: RuntimeError: out of order"),
        "gone": ("", f"{EXERCISE}.ipynb is a link to somewhere else."),
        "open": ("block_bytes", "Its process ended."),
    }
    nothing = dict.fromkeys(POINTS)
    for student in ("broken", "crash", "gone"):
        assert scores(folder, student) == nothing
        found = gradebook_of(folder)[f"{student} {EXERCISE}"]
        assert all(needs for _, _, needs in found["scores"].values())
        autograded = folder / "autograder" / "autograded" / student / EXERCISE
        assert (
            "This submission could not be graded" in (autograded / f"{EXERCISE}.ipynb").read_text()
        )
    assert scores(folder, "open") == {**POINTS, "block_bytes-test": None}
    assert scores(folder, "first") == POINTS


def test_another_run_tries_again_what_was_no_fault_of_the_submission(folder: Path) -> None:
    for student in ("open", "crash"):
        submit(folder, student, notebook())
    submit(folder, "broken", b"{")
    run(folder)
    inline_workers.MARKED.clear()
    assert [each.student for each in run(folder).attention] == ["broken", "crash", "open"]
    assert inline_workers.MARKED == ["crash", "open"]


def test_what_a_teacher_has_settled_stays_settled(folder: Path) -> None:
    submit(folder, "open", notebook())
    run(folder)
    with Gradebook(find_course(folder).db_url) as gradebook:
        cell = gradebook.find_grade("block_bytes-test", EXERCISE, EXERCISE, "open")
        cell.manual_score = 1.0
        gradebook.db.commit()
    inline_workers.MARKED.clear()
    assert not run(folder).needs_human
    assert inline_workers.MARKED == []
    found = gradebook_of(folder)[f"open {EXERCISE}"]["scores"]
    assert found["block_bytes-test"][1] == 1.0


def test_a_broken_second_version_takes_the_scores_of_the_first_away(folder: Path) -> None:
    submit(folder, "first", b"")
    outcome = run(folder)
    assert outcome.attention == [Attention("first", EXERCISE, "", "The file is empty.")]
    assert scores(folder, "first") == dict.fromkeys(POINTS)


@pytest.mark.parametrize("tries", [1, 2])
def test_what_nbgrader_does_not_take_stops_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    steps = gradebook_writer.Autograde.convert_single_notebook
    refused: list[str] = []

    def refusing(self: gradebook_writer.Autograde, filename: str) -> None:
        if "/odd/" in filename and len(refused) < tries:
            refused.append(filename)
            raise ValueError("an unexpected cell")
        steps(self, filename)

    monkeypatch.setattr(gradebook_writer.Autograde, "convert_single_notebook", refusing)
    submit(folder, "odd", notebook())
    submit(folder, "second", notebook())
    outcome = run(folder)
    reason = "nbgrader did not take it: an unexpected cell"
    assert outcome.attention == [Attention("odd", EXERCISE, "", reason)]
    assert scores(folder, "second") == POINTS
    assert (f"odd {EXERCISE}" in gradebook_of(folder)) == (tries == 1)
    if tries == 1:
        assert scores(folder, "odd") == dict.fromkeys(POINTS)


def _fail(*arguments: object) -> None:
    raise WorkerDied("3 workers died of it")


def test_who_has_no_score_is_listed_once_even_if_no_page_can_be_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramlab_classroom.run.run.page", _fail)
    submit(folder, "crash", notebook())
    submit(folder, "open", notebook())
    submit(folder, "second", notebook())
    assert run(folder).attention == [
        Attention("second", EXERCISE, "feedback", "It could not be made: 3 workers died of it"),
        Attention("crash", EXERCISE, "", "It could not be graded: RuntimeError: out of order"),
        Attention("open", EXERCISE, "block_bytes", "Its process ended."),
    ]


def test_what_nbgrader_refuses_is_listed_once_though_an_earlier_version_has_no_score(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(folder, "odd", b"{")
    run(folder)

    def refuse(self: gradebook_writer.Autograde, filename: str) -> None:
        raise ValueError("an unexpected cell")

    monkeypatch.setattr(gradebook_writer.Autograde, "convert_single_notebook", refuse)
    submit(folder, "odd", notebook())
    reason = "nbgrader did not take it: an unexpected cell"
    assert run(folder).attention == [Attention("odd", EXERCISE, "", reason)]


def test_files_beside_the_notebook_are_there_for_who_looks_at_it(folder: Path) -> None:
    place = submit(folder, "second", notebook())
    (place / "data").mkdir()
    (place / "data" / "sizes.csv").write_text("1,2")
    (place / "seed").symlink_to(folder / "autograder" / "hidden_seed.txt")
    outcome = run(folder)
    assert [(stray.path.name, stray.reason) for stray in outcome.left] == [
        ("seed", "it is a link to somewhere else")
    ]
    assert not outcome.needs_human
    autograded = folder / "autograder" / "autograded" / "second" / EXERCISE
    assert (autograded / "data" / "sizes.csv").read_text() == "1,2"
    assert not (autograded / "seed").exists()
    # It runs again when one has changed, without grading the notebook again.
    assert run(folder).kept == 2
    (place / "data" / "sizes.csv").write_text("1,2,3")
    assert run(folder).graded == 1
    assert (autograded / "data" / "sizes.csv").read_text() == "1,2,3"
    assert inline_workers.MARKED == ["second"]


def test_workers_of_another_version_stop_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(work: MarkingWork, conditions: MarkingConditions) -> None:
        raise OtherVersionsError("a worker has torch 1.0, but this machine has torch 2.0")

    monkeypatch.setattr("vramlab_classroom.run.run.mark", refuse)
    submit(folder, "second", notebook())
    with pytest.raises(OtherVersionsError, match=r"torch 1\.0, but this machine has torch 2\.0"):
        run(folder)
    assert f"second {EXERCISE}" not in gradebook_of(folder)


def test_late_penalties_are_kept(folder: Path) -> None:
    from datetime import UTC, datetime

    config = folder / "autograder" / "nbgrader_config.py"
    (folder / "autograder" / "late.py").write_text(
        "from nbgrader.plugins import BasePlugin\n"
        "class TwoPoints(BasePlugin):\n"
        "    def late_submission_penalty(self, student_id, score, total_seconds_late):\n"
        "        return 2.0\n"
    )
    config.write_text(
        f"{config.read_text()}\n"
        "sys.path.insert(0, str(HERE))\n"
        "c.AssignLatePenalties.plugin_class = 'late.TwoPoints'\n"
    )
    with Gradebook(find_course(folder).db_url) as gradebook:
        gradebook.find_assignment(EXERCISE).duedate = datetime(2025, 12, 31, tzinfo=UTC)
        gradebook.db.commit()
    submit(folder, "late", notebook())
    run(folder)
    assert gradebook_of(folder)[f"late {EXERCISE}"]["penalty"] == 2.0


def test_a_locked_gradebook_is_told_and_nothing_is_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradebook_writer, "LOCK_SECONDS", 0.05)
    submit(folder, "second", notebook())
    run(folder, students=("first",))
    other = sqlite3.connect(folder / "autograder" / "gradebook.db")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(GradebookError, match=r"gradebook\.db cannot be used: database is locked"):
        run(folder)
    other.rollback()
    other.close()
    assert run(folder).graded == 1
    assert scores(folder, "second") == POINTS


def test_a_disk_that_fills_up_is_told_and_nothing_is_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(folder, "second", notebook())
    submit(folder, "third", notebook())

    def full(self: object, *arguments: object, **named: object) -> None:
        raise OSError(28, "No space left on device", "autograded/second")

    with monkeypatch.context() as patch:
        patch.setattr("nbconvert.writers.FilesWriter.write", full)
        with pytest.raises(GradebookError) as told:
            run(folder)
    assert f"{told.value}" == (
        "autograded/second cannot be written: No space left on device. "
        "No results were lost. Fix this problem and run the command again"
    )
    assert f"second {EXERCISE}" not in gradebook_of(folder)
    assert run(folder).graded == 2
    assert inline_workers.MARKED.count("second") == 1


def test_killed_at_any_moment_it_goes_on_where_it_was(folder: Path) -> None:
    """kill -9 at several moments, and the result is that of an uninterrupted run."""
    students = [f"s{count:02}" for count in range(12)]
    for student in students:
        submit(folder, student, notebook())
    untouched = Path(shutil.copytree(folder, folder.parent / "untouched"))
    assert run(untouched).graded == len(students)

    environment = {**os.environ, "PYTHONPATH": f"{ROOT_OF_TESTS}{os.pathsep}{SUPPORT}"}
    command = [warm_classroom(), f"{SUPPORT / 'inline_workers.py'}"]
    for marked_before in (3, 8):
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        _wait_until(lambda count=marked_before: _markings(folder) > count)
        process.send_signal(signal.SIGKILL)
        output, complaint = process.communicate()
        assert process.returncode == -signal.SIGKILL, (output, complaint)
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stderr == ""
    assert gradebook_of(folder) == gradebook_of(untouched)
    assert all(page(folder, student).exists() for student in students)
    with Journal(folder / "autograder" / "journal.db") as journal:
        marked = [entry.student for entry in journal.entries()]
    assert sorted(marked) == ["first", *students]  # none twice


ROOT_OF_TESTS = SUPPORT.parents[1]


def _markings(folder: Path) -> int:
    database = sqlite3.connect(folder / "autograder" / "journal.db")
    (count,) = database.execute("SELECT count(*) FROM markings").fetchone()
    database.close()
    return int(count)


def _wait_until(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_journal_holds_no_password(folder: Path) -> None:
    course = find_course(folder, db_url="postgresql://ada:secret@nowhere/book")
    with pytest.raises(GradebookError) as told:
        grade(course, Options(sandbox="limits"))
    assert "secret" not in f"{told.value}"
    assert "postgresql://ada:***@nowhere/book" in f"{told.value}"
