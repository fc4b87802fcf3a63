"""What the verbs around a class print and write, as a teacher types them in its folder."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pytest
from small_gradebook import EXERCISE, add_submission, make_gradebook

from vramlab.cli import main
from vramlab_classroom.commands.grade import summary
from vramlab_classroom.run.needs_review import Attention
from vramlab_classroom.run.run import ClassOutcome
from vramlab_classroom.run.submissions import Stray

ROOT = Path(__file__).parents[3]


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a course with three students, one of whom could not be graded."""
    (tmp_path / "autograder").mkdir()
    for name in ("nbgrader_config.py", "autograder/nbgrader_config.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    with make_gradebook(tmp_path / "autograder") as gradebook:
        add_submission(gradebook, "ada", {"block_bytes": 2, "segment_bytes": 3}, hours_late=-1)
        add_submission(gradebook, "bob", {"block_bytes": 0, "segment_bytes": 3}, hours_late=2)
        add_submission(
            gradebook,
            "cem",
            {"block_bytes": None, "segment_bytes": 0},
            reasons={"block_bytes": "its process ended with SIGKILL"},
        )
    monkeypatch.chdir(tmp_path / "autograder")
    return tmp_path


def test_scores_go_to_the_terminal_and_notes_beside_them(
    course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scores", "2"]) == 0
    out, err = capsys.readouterr()
    rows = {row["student"]: row for row in csv.DictReader(io.StringIO(out))}
    assert {student: row["score"] for student, row in rows.items()} == {
        "ada": "5",
        "bob": "3",
        "cem": "",
    }
    assert err == (f"cem, {EXERCISE}: no score: block_bytes: its process ended with SIGKILL\n")


def test_scores_go_to_a_file(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scores", "-o", "scores.csv"]) == 0
    out, err = capsys.readouterr()
    assert "cem, " in out
    assert err == ""
    assert Path("scores.csv").read_text().count("\n") == 1 + 3


def test_scores_are_filled_into_files_of_an_lms(course: Path) -> None:
    Path("canvas.csv").write_text(
        "Student,ID,SIS Login ID,Section,02 pages and blocks (7)\n"
        "    Points Possible,,,,5\n"
        "Ada,1,ada,A,\nCem,2,cem,A,\n"
    )
    assert main(["scores", "--canvas", "canvas.csv", "-o", "import.csv"]) == 0
    assert "Ada,1,ada,A,5\nCem,2,cem,A,\n" in Path("import.csv").read_text()
    Path("moodle.csv").write_text("Identifier,Full name,Grade\nParticipant 1,Ada,\n")
    assert main(["scores", "02", "--moodle", "moodle.csv", "-o", "upload.csv"]) == 0
    assert Path("upload.csv").read_text() == ("Identifier,Full name,Grade\nParticipant 1,Ada,5\n")


def test_a_report_is_printed_or_written(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "02"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{EXERCISE}\n")
    assert "cem: block_bytes: its process ended with SIGKILL" in out
    assert "bob: 2.0 hours late" in out
    assert err == ""
    assert main(["report", "02", "-o", "report.html"]) == 0
    assert "its process ended with SIGKILL" in Path("report.html").read_text()


def test_submissions_are_collected_with_the_due_date_of_the_gradebook(
    course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    download = course / "download"
    download.mkdir()
    for name in ("ada_LATE_1_2_02-pages-and-blocks.ipynb", "bob_3_4_essay.ipynb"):
        (download / name).write_text("{}")
    assert main(["collect", str(download)]) == 1
    out, _ = capsys.readouterr()
    assert out.splitlines() == [
        f"taken      'ada_LATE_1_2_02-pages-and-blocks.ipynb': ada-1, {EXERCISE}, "
        "2026-03-01 12:00, late",
        "NOT TAKEN  'bob_3_4_essay.ipynb': its name is that of no assignment: say which it is for "
        "with --assignment",
        "1 taken, 1 not taken",
    ]
    folder = course / "autograder" / "submitted" / "ada-1" / EXERCISE
    assert (folder / "timestamp.txt").read_text() == "2026-03-01 12:00:01.000000 UTC\n"
    assert main(["collect", str(download / "none.zip")]) == 2


def test_a_summary_says_what_happened_and_not_where() -> None:
    reason = (
        "the judge's process failed at it:\n"
        "Traceback (most recent call last):\n"
        '  File "pages.py", line 1, in render\n'
        "    raise KeyError\n"
        "KeyError: 'html'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "pages.py", line 3, in render\n'
        "NoTemplate: none in the folders\n"
        "/usr/share"
    )
    outcome = ClassOutcome(
        graded=1,
        seconds=60,
        attention=[Attention("ada", EXERCISE, "feedback", reason)],
        left=[Stray(Path("ada/\x1b[2J"), "it is a link to somewhere else")],
    )
    assert summary(outcome).splitlines() == [
        "graded 1 submission in 1 min 0 s (1 per minute); 0 were graded before",
        "for a human to look at (1):",
        f"  ada, {EXERCISE} feedback: the judge's process failed at it: "
        "NoTemplate: none in the folders",
        "not copied to autograded/ with the notebook (1):",
        "  'ada/\\x1b[2J': it is a link to somewhere else",
    ]
