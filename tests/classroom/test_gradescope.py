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

from vramlab.classroom.gradescope import AsNobody, details, mark_folder, results, without_hidden
from vramlab.classroom.gradescope_zip import autograder_zip
from vramlab.classroom.marked import Marked
from vramlab.cli import main
from vramlab.errors import VramlabError
from vramlab.grading.verdict import CaseResult, Grade, Verdict

ROOT = Path(__file__).parents[2]
EXERCISE = "02_pages_and_blocks"

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

VISIBLE = CaseResult({"size": 4}, True, "512", "512", visible=True)
HIDDEN = CaseResult({"size": 1234}, False, "1024", "1536", visible=False)
PASSED = Verdict("f", 2, Grade.PASSED, "", (VISIBLE,))
FAILED = Verdict("g", 3, Grade.FAILED, "You forgot to round.", (VISIBLE, HIDDEN))
UNGRADED = Verdict("h", 4, Grade.UNGRADED, "Its process ended with SIGKILL.")


def _marked(*verdicts: Verdict, problem: str = "") -> Marked:
    return Marked("ada", "02", "abc", verdicts, problem)


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
    found = results(_marked(PASSED, FAILED), 12.6)
    _check_fields(found)
    assert found["score"] == 2 + 0
    assert found["execution_time"] == 13
    assert found["output"] == "02: 2 of 5 points"
    assert [(test["name"], test["score"], test["max_score"]) for test in found["tests"]] == [
        ("f", 2, 2),
        ("g", 0, 3),
    ]
    assert [test["status"] for test in found["tests"]] == ["passed", "failed"]
    assert found["tests"][0]["output"].startswith("f: passed in 1 case, 2 of 2 points")


def test_what_could_not_be_graded_has_no_score_anywhere_and_is_no_zero() -> None:
    found = results(_marked(PASSED, UNGRADED), 1)
    _check_fields(found)
    assert "score" not in found
    assert not any("score" in test or "max_score" in test for test in found["tests"])
    assert "That is not a zero" in found["output"]
    assert "h: could not be graded\nIts process ended with SIGKILL." in found["output"]


def test_a_submission_that_could_not_be_read_has_no_score_either() -> None:
    found = results(_marked(problem="It is not JSON."), 1)
    _check_fields(found)
    assert "score" not in found
    assert found["tests"] == []
    assert found["output"].endswith("It is not JSON.")


def test_hidden_cases_are_for_instructors_only() -> None:
    marked = _marked(FAILED)
    assert "1234" not in json.dumps(results(marked, 1))
    assert "1234" in details(marked)
    (test,) = results(marked, 1)["tests"]
    assert "Right on the cases that are shown, but not on others.\nYou forgot" in test["output"]


def test_a_repair_that_failed_on_a_hidden_case_does_not_name_it() -> None:
    message = "It ran out of memory. (tried with rows=4321, count=3)"
    shown = without_hidden(Verdict("fix", 4, Grade.FAILED, message, (VISIBLE,)))
    assert shown.message.endswith("not on others.\nIt ran out of memory.")
    assert "4321" not in str(shown)


def test_a_folder_without_the_notebook_says_what_to_hand_in(tmp_path: Path) -> None:
    (tmp_path / "essay.pdf").write_text("")
    marked = mark_folder(tmp_path, EXERCISE, "seed")
    assert marked.problem == (
        "Hand in one notebook, 02_pages_and_blocks.ipynb; there is no notebook at all."
    )
    for name in ("a.ipynb", "b.ipynb"):
        (tmp_path / name).write_text("{}")
    assert mark_folder(tmp_path, EXERCISE, "seed").problem.endswith(
        "there is 'a.ipynb', 'b.ipynb'."
    )
    link = tmp_path / f"{EXERCISE}.ipynb"
    link.symlink_to("/etc/hostname")
    assert "link" in mark_folder(tmp_path, EXERCISE, "seed").problem


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
    assert {"setup.sh", "run_autograder", "vramlab/cli.py", "vramlab/gpus.toml"} <= names
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


def test_without_a_lock_there_is_nothing_to_install(tmp_path: Path) -> None:
    with pytest.raises(VramlabError, match=r"there is no .*requirements.txt"):
        autograder_zip(tmp_path, EXERCISE, "seed")


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
            # Right in all visible cases.
            cell["source"] = (
                "def block_bytes(requested_bytes):\n"
                "    return max(512, -(-requested_bytes // 512) * 512)\n"
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
    assert found["score"] == 16 - 2
    assert found["tests"][0]["score"] == 0
    assert "An empty tensor takes no block at all." in found["tests"][0]["output"]
    assert "(hidden)" not in json.dumps(found)
    assert "requested_bytes=0 (hidden)" in ran.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
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
