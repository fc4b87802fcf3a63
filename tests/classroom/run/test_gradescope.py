"""Gradescope: results as its specifications have them, and an autograder that runs as packed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from vramlab.cli import main
from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.verdict import CaseResult, Grade, Verdict
from vramlab_classroom.lms.gradescope import (
    AsNobody,
    GradescopeOutcome,
    details,
    mark_folder,
    results,
)
from vramlab_classroom.lms.gradescope_zip import autograder_zip
from vramlab_classroom.run.graded_submission import Marked

ROOT = Path(__file__).parents[3]
EXERCISE = "02_pages_and_blocks"
BLOCK = find_exercise(EXERCISE).task("block_bytes")

# docs/specs.md of gradescope/autograder_samples
TOP_FIELDS = {
    "score",
    "execution_time",
    "output",
    "output_format",
    "stdout_visibility",
    "tests",
    "extra_data",
}
TEST_FIELDS = {
    "score",
    "max_score",
    "name",
    "number",
    "status",
    "output",
    "output_format",
    "visibility",
}

VISIBLE = CaseResult({"requested_bytes": 4}, True, "512", "512", visible=True)
WRONG = CaseResult({"requested_bytes": 513}, False, "512", "1024", visible=True)
HIDDEN = CaseResult({"requested_bytes": 1234}, False, "1234", "1536", visible=False)
PASSED = Verdict("block_bytes", 2, Grade.PASSED, "", (VISIBLE,))
FAILED = Verdict("segment_bytes", 3, Grade.FAILED, "1 of 2 cases is wrong.", (VISIBLE, WRONG))
UNGRADED = Verdict("row_norms", 4, Grade.UNGRADED, "Its process ended with SIGKILL.")


def _marked(*verdicts: Verdict, problem: str = "") -> Marked:
    return Marked("", EXERCISE, "abc", verdicts, problem)


def _results(*verdicts: Verdict, problem: str = "") -> dict[str, Any]:
    """Give results for verdicts that are the same without hidden cases."""
    marked = _marked(*verdicts, problem=problem)
    found = results(GradescopeOutcome(marked, marked), 12.6)
    _check_fields(found)
    return found


def _feedback(with_hidden: Verdict, visible: Verdict) -> str:
    """Return what a student sees."""
    (test,) = results(GradescopeOutcome(_marked(with_hidden), _marked(visible)), 1)["tests"]
    return str(test["output"])


def _check_fields(found: dict[str, Any]) -> None:
    """Check a result against the specifications."""
    assert set(found) <= TOP_FIELDS
    assert found["output_format"] == "text"
    assert found["stdout_visibility"] == "hidden"
    assert type(found["execution_time"]) is int
    for test in found["tests"]:
        assert set(test) <= TEST_FIELDS
        assert test["status"] in ("passed", "failed")
        assert test["visibility"] == "visible"
    assert json.loads(json.dumps(found)) == found


def test_a_graded_submission_has_a_score_for_each_task_and_their_sum() -> None:
    found = _results(PASSED, FAILED)
    assert found["score"] == 2 + 0
    assert found["execution_time"] == 13
    assert found["output"] == "02_pages_and_blocks: 2 of 5 points"
    assert [(test["name"], test["score"], test["max_score"]) for test in found["tests"]] == [
        ("block_bytes", 2, 2),
        ("segment_bytes", 0, 3),
    ]
    assert [test["status"] for test in found["tests"]] == ["passed", "failed"]
    assert found["tests"][0]["output"] == str(PASSED)
    assert found["tests"][1]["output"] == str(FAILED)


def test_a_task_that_is_partly_right_has_the_points_of_the_hidden_cases() -> None:
    # Which of the hidden cases are right is not told, only what the answer has earned.
    cases = (VISIBLE, VISIBLE, WRONG)
    partly = Verdict("segment_bytes", 3, Grade.PARTLY, "Round.", (*cases, VISIBLE), earned=1.5)
    seen = Verdict("segment_bytes", 3, Grade.PARTLY, "Round.", cases, earned=2)
    found = results(GradescopeOutcome(_marked(PASSED, partly), _marked(PASSED, seen)), 1)
    _check_fields(found)
    assert (found["score"], found["tests"][1]["score"]) == (3.5, 1.5)
    assert found["output"] == "02_pages_and_blocks: 3.5 of 5 points"
    headline = "segment_bytes: partly right in 2 of 3 cases, 1.5 of 3 points"
    assert found["tests"][1]["output"].splitlines()[0] == headline


def test_what_could_not_be_graded_has_no_score_anywhere_and_is_no_zero() -> None:
    found = _results(PASSED, UNGRADED)
    assert "score" not in found
    assert not any("score" in test or "max_score" in test for test in found["tests"])
    assert "That is not a zero" in found["output"]
    assert found["output"].endswith("\n\nrow_norms")
    assert "SIGKILL" not in json.dumps(found)


def test_students_are_told_nothing_that_comes_from_a_hidden_case() -> None:
    """Or an answer could ask: raise what it was called with, and read how far 0 is off."""
    for message in ("ValueError: 1234", "1 of 3 cases are wrong; the first is off by -1536"):
        failed = Verdict("block_bytes", 2, Grade.FAILED, message, (VISIBLE, WRONG, HIDDEN))
        seen = Verdict("block_bytes", 2, Grade.FAILED, "Look at 513.", (VISIBLE, WRONG))
        assert _feedback(failed, seen) == str(seen)
        assert _feedback(failed, PASSED) == (
            "block_bytes: right on the cases that are shown, but not on others"
        )
    repair = Verdict("row_norms", 4, Grade.FAILED, "It ran out. (tried with rows=4321)", (VISIBLE,))
    seen = Verdict("row_norms", 4, Grade.PASSED, "", (VISIBLE,))
    assert (
        _feedback(repair, seen) == "row_norms: right on the cases that are shown, but not on others"
    )
    assert "4321" in details(_marked(repair))


def _problem(folder: Path) -> str:
    outcome = mark_folder(folder, EXERCISE, "seed")
    assert outcome.marked == outcome.visible
    return outcome.marked.problem


def test_a_folder_without_the_notebook_says_what_to_hand_in(tmp_path: Path) -> None:
    (tmp_path / "essay.pdf").write_text("")
    assert _problem(tmp_path) == (
        "Submit one notebook, 02_pages_and_blocks.ipynb; this submission contains no notebook."
    )
    for name in ("a.ipynb", "b.ipynb"):
        (tmp_path / name).write_text("{}")
    assert _problem(tmp_path).endswith("contains 'a.ipynb', 'b.ipynb'.")
    link = tmp_path / f"{EXERCISE}.ipynb"
    link.symlink_to("/etc/hostname")
    assert "link" in _problem(tmp_path)


def test_the_zip_has_what_gradescope_wants_and_no_solution(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.13.0\n")
    packed = tmp_path / "autograder.zip"
    packed.write_bytes(
        autograder_zip(tmp_path, EXERCISE, "the seed", index_url="https://x.org/$(y)")
    )
    with zipfile.ZipFile(packed) as archive:
        names = set(archive.namelist())
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        setup = archive.read("setup.sh").decode()
        seed = archive.read("secret/hidden_seed.txt")
        lock = archive.read("requirements.txt")
    assert {
        "setup.sh",
        "run_autograder",
        "vramlab/cli.py",
        "vramlab/gpus.toml",
        "vramlab.dist-info/entry_points.txt",
    } <= names
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755
    assert modes["secret/hidden_seed.txt"] == 0o600
    assert seed == b"the seed\n"
    assert lock == b"torch==2.13.0\n"
    assert not any(name.endswith((".ipynb", ".db", ".pyc")) for name in names)
    assert "export PIP_EXTRA_INDEX_URL='https://x.org/$(y)'\n" in setup
    assert autograder_zip(tmp_path, EXERCISE, "s") == autograder_zip(tmp_path, EXERCISE, "s")
    for script in ("setup.sh", "run_autograder"):
        with zipfile.ZipFile(packed) as archive:
            subprocess.run(["bash", "-n"], input=archive.read(script), check=True)


def test_the_packed_autograder_grades_a_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lay out what Gradescope does, except that the environment is this one, and run it."""
    monkeypatch.setenv("VRAMLAB_HIDDEN_SEED", "the seed")
    packed, autograder = tmp_path / "autograder.zip", tmp_path / "autograder"
    monkeypatch.chdir(ROOT)
    assert main(["gradescope", "pack", "2", "-o", str(packed)]) == 0
    monkeypatch.delenv("VRAMLAB_HIDDEN_SEED")
    for folder in ("source", "submission", "results"):
        (autograder / folder).mkdir(parents=True)
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(autograder / "source")
    (autograder / "venv").symlink_to(sys.prefix)
    master = json.loads((ROOT / "solutions" / EXERCISE / f"{EXERCISE}.ipynb").read_text())
    for cell in master["cells"]:
        if cell["id"] == "block_bytes":
            cell["source"] = (
                "def block_bytes(requested_bytes):\n"
                f"    known = {[case['requested_bytes'] for case in BLOCK.visible]}\n"
                "    return -(-requested_bytes // 512) * 512 * (requested_bytes in known)\n"
            )
    (autograder / "submission" / "homework.ipynb").write_text(json.dumps(master))
    ran = subprocess.run(
        ["bash", autograder / "source" / "run_autograder"],
        env={**os.environ, "AUTOGRADER": str(autograder)},
        cwd=autograder,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads((autograder / "results" / "results.json").read_text())
    _check_fields(found)
    assert found["score"] == 16 - 2 - 3 - 4  # two more tasks build upon it
    assert found["tests"][0]["score"] == 0
    assert "but not on others" in found["tests"][0]["output"]
    assert "(hidden)" not in json.dumps(found)
    assert "(hidden)" in ran.stdout


def test_set_up_everybody_may_read_the_packages_and_nobody_the_seed(tmp_path: Path) -> None:
    """As on a machine where new files are their owner's alone."""
    (tmp_path / "requirements.txt").write_text("torch==2.13.0\n")
    packed, source = tmp_path / "autograder.zip", tmp_path / "source"
    packed.write_bytes(autograder_zip(tmp_path, EXERCISE, "the seed"))
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(source)
    (tmp_path / "venv").mkdir()
    subprocess.run(["chmod", "-R", "go=", source], check=True)
    _, permissions = (
        (source / "setup.sh").read_text().split("\n# Answers are judged as an unprivileged user")
    )
    subprocess.run(
        ["bash", "-e"],
        input=f"#{permissions}",
        env={**os.environ, "autograder": str(tmp_path)},
        text=True,
        check=True,
    )
    closed = {
        path.relative_to(source).parts[0]
        for path in source.rglob("*")
        if not path.stat().st_mode & 0o004
    }
    assert closed == {"requirements.txt", "run_autograder", "secret", "setup.sh"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_as_nobody_the_seed_cannot_be_read(tmp_path: Path) -> None:
    secret = tmp_path / "hidden_seed.txt"
    secret.write_text("the seed")
    secret.chmod(0o600)
    trial = "import os, sys; print(os.getuid()); open(sys.argv[1])"
    ran = subprocess.run(
        [*AsNobody().prefix(), "-c", trial, secret], capture_output=True, text=True, check=False
    )
    assert ran.stdout == "65534\n"
    assert "PermissionError" in ran.stderr
