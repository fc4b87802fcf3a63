"""nbgrader's own commands, as a teacher and a learner type them: from the root and autograder/.

What one exercise proves of `validate`, the others need not prove again. Of them the other cells
run: those that set up, explore and show what a question is about.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from classroom import ROOT
from forked_kernels import execute
from warm_python import warm_classroom, warm_python

from vramlab_classroom.judge.exercises import exercise_names

pytestmark = pytest.mark.long

EXERCISE = "02_pages_and_blocks"
SUCCESS = "Success! Your notebook passes all the tests.\n"

Nbgrader = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def nbgrader(tmp_path_factory: pytest.TempPathFactory) -> Nbgrader:
    """Return a function that runs a command in a folder, without this machine's own settings."""
    data = tmp_path_factory.mktemp("data")
    _write_kernel(data / "kernels" / "python3")
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(tmp_path_factory.mktemp("settings")),
        "JUPYTER_PATH": f"{data}",
    }

    def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        command = [warm_classroom(), "-m", "nbgrader", *words]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    return run


def _write_kernel(folder: Path) -> None:
    """Describe to Jupyter a kernel as it is installed, of a Python that may have torch already."""
    folder.mkdir(parents=True)
    command = [warm_python(), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    facts = {"argv": command, "display_name": "Python 3", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(facts))


def test_a_teacher_releases_grades_and_returns_from_either_folder(
    nbgrader: Nbgrader, tmp_path: Path
) -> None:
    for name in ("solutions", "exercises"):
        shutil.copytree(ROOT / name / EXERCISE, tmp_path / name / EXERCISE)
    autograder = tmp_path / "autograder"
    shutil.copytree(ROOT / "solutions" / EXERCISE, autograder / "submitted" / "ada" / EXERCISE)
    for name in ("nbgrader_config.py", "autograder/nbgrader_config.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    released = tmp_path / "exercises" / EXERCISE / f"{EXERCISE}.ipynb"
    committed = released.read_bytes()
    for folder, command in (
        (autograder, "generate_assignment"),
        (tmp_path, "autograde"),
        (autograder, "generate_feedback"),
    ):
        outcome = nbgrader(folder, command, EXERCISE)
        assert outcome.returncode == 0, outcome.stderr
    assert released.read_bytes() == committed
    feedback = autograder / "feedback" / "ada" / EXERCISE / f"{EXERCISE}.html"
    # One case is visible; the seed is new, so that a hidden one may be that as well.
    assert re.search(r"row_norms: passed in [123] cases?, 4 of 4 points", feedback.read_text())
    assert {path.name for path in autograder.iterdir()} == {
        "nbgrader_config.py",
        "submitted",
        "autograded",
        "feedback",
        "gradebook.db",
        "hidden_seed.txt",
    }
    assert {path.name for path in tmp_path.iterdir()} == {
        "nbgrader_config.py",
        "solutions",
        "exercises",
        "autograder",
    }


# The '::' lets pytest-xdist's loadscope give each solution to whichever worker is free.
@pytest.mark.parametrize("name", exercise_names(), ids=lambda name: f"{name}::run")
def test_the_cells_around_the_checks_run(name: str, tmp_path: Path) -> None:
    """What the checks say of each solution, `test_exercises.py` has from nbgrader's gradebook."""
    notebook = nbformat.read(ROOT / "solutions" / name / f"{name}.ipynb", nbformat.NO_CONVERT)
    notebook.cells = [cell for cell in notebook.cells if not cell.source.startswith("check(")]
    execute(notebook, tmp_path)


def test_a_learner_validates_a_solution(nbgrader: Nbgrader, tmp_path: Path) -> None:
    notebook = tmp_path / f"{EXERCISE}.ipynb"
    shutil.copy(ROOT / "solutions" / EXERCISE / notebook.name, notebook)
    shutil.copy(ROOT / "autograder" / "nbgrader_config.py", tmp_path)
    outcome = nbgrader(tmp_path, "validate", "--Validator.validate_all=True", notebook.name)
    assert outcome.stdout == SUCCESS, outcome.stdout + outcome.stderr
    assert outcome.returncode == 0


def test_validate_tells_a_learner_which_tasks_are_not_solved(
    nbgrader: Nbgrader, tmp_path: Path
) -> None:
    notebook = tmp_path / f"{EXERCISE}.ipynb"
    content = json.loads((ROOT / "exercises" / EXERCISE / notebook.name).read_text())
    wrong = "def block_bytes(requested_bytes):\n    return requested_bytes"
    for cell in content["cells"]:
        if cell["id"] == "block_bytes":
            cell["source"] = wrong
    notebook.write_text(json.dumps(content))
    outcome = nbgrader(tmp_path, "validate", notebook.name)
    assert "VALIDATION FAILED ON 5 CELL(S)!" in outcome.stdout, outcome.stderr
    assert "You gave the requested size." in outcome.stdout
    assert "segment_bytes: not answered yet, 0 of 3 points" in outcome.stdout
    assert "Traceback" not in outcome.stdout
