"""`vramlab grade` as a teacher types it: real workers, real judging, a worker that dies."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from course_folder import EXERCISE, ROOT, gradebook_of, make_course, notebook, submit, with_answers

from vramlab import cli
from vramlab_classroom.judge.exercises import find_exercise

pytestmark = pytest.mark.long

POINTS = {f"{task.name}-test": float(task.points) for task in find_exercise(EXERCISE).tasks}
WRONG = "def releasable_bytes(segments):\n    return 1"
RIGHT = ("ada", "bob", "eve", "zoë")

COMMAND = [sys.executable, "-c", "import sys; from vramlab.cli import main; sys.exit(main())"]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("VRAMLAB")
    }
    return subprocess.Popen(
        [*COMMAND, "grade", *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": f"{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Find the processes that Dask started for a run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == process.pid and b"spawn_main" in command:
            found.append(int(folder.name))
    return found


def markings(folder: Path) -> list[str]:
    path = folder / "autograder" / "journal.db"
    if not path.exists():
        return []
    database = sqlite3.connect(path)
    try:
        return [student for (student,) in database.execute("SELECT student FROM markings")]
    except sqlite3.OperationalError:  # not made yet
        return []
    finally:
        database.close()


def wait_for(condition, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str, str]:
    """A class that was graded while one of two workers was killed: how that ended."""
    folder = make_course(tmp_path_factory.mktemp("course"))
    for count, student in enumerate(RIGHT):
        answers = {"block_bytes": _answer("block_bytes") + f"\n\n# by student {count}"}
        submit(folder, student, with_answers(notebook(), answers))
    submit(folder, "blank", notebook("exercises"))
    submit(folder, "wrong", with_answers(notebook(), {"releasable_bytes": WRONG}))
    submit(folder, "broken", b'{"truncated')
    process = start(folder, "--workers", "2")
    wait_for(lambda: markings(folder), process)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    output, complaint = process.communicate(timeout=300)
    return folder, process.returncode, output, complaint


def _answer(task: str) -> str:
    (cell,) = (cell for cell in notebook()["cells"] if cell["id"] == task)
    return "".join(cell["source"])


def test_a_worker_that_dies_costs_nobody_a_grade(graded: tuple[Path, int, str, str]) -> None:
    folder, status, output, complaint = graded
    assert complaint == ""
    assert status == 1  # the broken one is for a human
    assert "graded 7 submissions" in output
    scores = {
        who.split()[0]: {cell: auto for cell, (auto, _, _) in found["scores"].items()}
        for who, found in gradebook_of(folder).items()
    }
    assert scores == {
        **dict.fromkeys(RIGHT, POINTS),
        "blank": dict.fromkeys(POINTS, 0.0),
        "wrong": {**POINTS, "releasable_bytes-test": 0.0},
        "broken": dict.fromkeys(POINTS),
    }
    assert sorted(markings(folder)) == sorted([*RIGHT, "blank", "wrong", "broken"])


def test_the_output_ends_with_what_a_human_has_to_look_at(
    graded: tuple[Path, int, str, str],
) -> None:
    _, _, output, _ = graded
    *_, title, line = output.splitlines()
    assert title == "for a human to look at (1):"
    assert line.startswith(f"  broken, {EXERCISE}: It is not a notebook: it is not JSON (")


def test_feedback_is_a_page_with_scores_and_verdicts(graded: tuple[Path, int, str, str]) -> None:
    folder, *_ = graded
    pages = folder / "autograder" / "feedback"
    wrong = (pages / "wrong" / EXERCISE / f"{EXERCISE}.html").read_text()
    earned = sum(POINTS.values()) - POINTS["releasable_bytes-test"]
    assert f"(Score: {earned} / {sum(POINTS.values())})" in wrong
    assert "block_bytes: passed in 13 cases, 2 of 2 points" in wrong
    assert "releasable_bytes: failed, 0 of 3 points" in wrong
    broken = (pages / "broken" / EXERCISE / f"{EXERCISE}.html").read_text()
    assert "This submission could not be graded" in broken
    assert "it is not JSON" in broken


def test_a_second_run_keeps_all_of_it(graded: tuple[Path, int, str, str]) -> None:
    folder, *_ = graded
    before = gradebook_of(folder)
    process = start(folder)
    output, complaint = process.communicate(timeout=300)
    assert complaint == ""
    assert re.match(r"graded 0 submissions in \d+ s; 7 were graded before\n", output)
    assert process.returncode == 1
    assert gradebook_of(folder) == before


def test_interrupted_it_ends_quietly_and_keeps_what_is_graded(
    graded: tuple[Path, int, str, str],
) -> None:
    folder, *_ = graded
    process = start(folder, "--again", "--workers", "1")
    wait_for(lambda: workers_of(process), process)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert complaint == ""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["99"], "vramlab: there is no exercise '99': use a number from 01 to 30"),
        (["03"], "vramlab: no submissions for 03_fragmentation_and_oom: collect them first, see "),
        (["--students", "adda"], "vramlab: no submission is of a student adda\n"),
        (
            ["--workers", "0"],
            "vramlab grade: error: argument --workers: invalid number '0'",
        ),
    ],
)
def test_what_cannot_be_done_is_told(
    graded: tuple[Path, int, str, str],
    words: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(graded[0])
    assert _status("grade", *words) == 2
    assert complaint in capsys.readouterr().err


def test_outside_of_a_course_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _status("grade") == 2
    assert "vramlab: there is no course in" in capsys.readouterr().err


def _status(*words: str) -> object:
    try:
        return cli.main(words)
    except SystemExit as ended:  # argparse ends so
        return ended.code


def test_the_command_line_stays_light() -> None:
    program = (
        "import sys; from vramlab.cli import parser; parser();"
        "print({'distributed', 'dask', 'nbgrader', 'sqlalchemy', 'torch'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert shown.stdout == "set()\n"
