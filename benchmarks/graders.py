"""Graders that are measured: each lays out a class in a folder of its own, and has a command.

What is done once for an assignment, such as filling nbgrader's gradebook with it, is not measured;
starting the grader is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.submissions import EXERCISE, ROOT, Notebook
from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.notebooks import TEST_SUFFIX, grade_id, tested_task

CORES = 2
SEED = "the seed of the benchmark\n"

STOCK_CONFIG = """
c = get_config()
c.CourseDirectory.course_id = "vramlab"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"
c.Execute.timeout = 600  # of a cell; the machine may be busy
"""

OTTER_TEST = """
from otter.test_files import test_case

OK_FORMAT = False
name = "{task}"
points = {points}


@test_case()
def test_{task}():
    from vramlab_classroom.judge import check

    check("{exercise}", "{task}")
"""

OTTER_RUN = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import DEVNULL, run

def grade(notebook):
    folder = Path("results", notebook.stem)
    folder.mkdir(parents=True)
    words = ["run", "--autograder", "autograder.zip", "--output-dir", str(folder), str(notebook)]
    run([sys.executable, "-m", "otter", *words], stdout=DEVNULL, stderr=DEVNULL, check=True)

with ThreadPoolExecutor(int(sys.argv[1])) as pool:
    list(pool.map(grade, sorted(Path("submissions").glob("*.ipynb"))))
"""
"""What `otter grade` does with its containers: an `otter run` in each, some at a time."""


@dataclass(frozen=True)
class Grader(ABC):
    """A way to grade a class.

    Attributes:
        name: as the tables call it.
        exercise: that the class has handed in.
    """

    name: str
    exercise: str = field(default=EXERCISE, kw_only=True)

    @abstractmethod
    def lay_out(self, folder: Path, notebooks: Mapping[str, Notebook]) -> None:
        """Prepare an empty folder, with the submissions of a class by student."""

    @abstractmethod
    def command(self, folder: Path) -> Sequence[str]:
        """Give the words that grade the class in a folder."""

    @abstractmethod
    def points(self, folder: Path) -> dict[str, float | None]:
        """Give what students have earned, after grading; None if there is no score."""


@dataclass(frozen=True)
class Nbgrader(Grader):
    """`nbgrader autograde`, which grades one submission after another.

    Attributes:
        stock: with nbgrader's own steps, which execute the notebook in a kernel, where the test
            cells call `check()`; else with the course's settings.
    """

    stock: bool

    def lay_out(self, folder: Path, notebooks: Mapping[str, Notebook]) -> None:
        lay_out_course(folder, notebooks, self.exercise, submitted=self._submitted)
        if self.stock:
            (folder / "nbgrader_config.py").write_text(STOCK_CONFIG)
            add_hidden_cases(folder / "solutions" / self.exercise / f"{self.exercise}.ipynb")
        words = ["nbgrader", "generate_assignment", self.exercise, "--force"]
        subprocess.run(
            [sys.executable, "-m", *words],
            cwd=folder,
            env=environment(folder),
            check=True,
            capture_output=True,
        )

    def command(self, folder: Path) -> Sequence[str]:
        return (sys.executable, "-m", "nbgrader", "autograde", self.exercise)

    def points(self, folder: Path) -> dict[str, float | None]:
        book = folder / ("gradebook.db" if self.stock else "autograder/gradebook.db")
        return points_in(f"sqlite:///{book}", self.exercise)

    @property
    def _submitted(self) -> str:
        return "submitted" if self.stock else "autograder/submitted"


@dataclass(frozen=True)
class Vramlab(Grader):
    """`vramlab grade` on as many workers as there are cores.

    Attributes:
        words: further options.
    """

    words: tuple[str, ...] = ()

    def lay_out(self, folder: Path, notebooks: Mapping[str, Notebook]) -> None:
        lay_out_course(folder, notebooks, self.exercise, submitted="autograder/submitted")

    def command(self, folder: Path) -> Sequence[str]:
        main = "import sys; from vramlab.cli import main; sys.exit(main())"
        return (sys.executable, "-c", main, "grade", "--workers", f"{CORES}", *self.words)

    def points(self, folder: Path) -> dict[str, float | None]:
        return points_in(f"sqlite:///{folder}/autograder/gradebook.db", self.exercise)


@dataclass(frozen=True)
class Otter(Grader):
    """otter-grader on an equivalent notebook, whose tests call the same judge.

    Attributes:
        python: of an environment that has otter-grader and what the course needs.
    """

    python: str

    def lay_out(self, folder: Path, notebooks: Mapping[str, Notebook]) -> None:
        tests = folder / "tests"
        tests.mkdir(parents=True)
        for task in find_exercise(self.exercise).tasks:
            text = OTTER_TEST.format(task=task.name, points=task.points, exercise=self.exercise)
            (tests / f"{task.name}.py").write_text(text)
        (folder / "run_all.py").write_text(OTTER_RUN)
        subprocess.run(
            [self.python, "-m", "otter", "generate", "--no-environment"],
            cwd=folder,
            env=environment(folder),
            check=True,
            capture_output=True,
        )
        (folder / "submissions").mkdir()
        for student, notebook in notebooks.items():
            text = json.dumps(for_otter(notebook))
            (folder / "submissions" / f"{student}.ipynb").write_text(text)

    def command(self, folder: Path) -> Sequence[str]:
        return (self.python, "run_all.py", f"{CORES}")

    def points(self, folder: Path) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for file in sorted((folder / "results").glob("*/results.json")):
            tests = json.loads(file.read_text())["tests"]
            found[file.parent.name] = sum(test.get("score", 0.0) for test in tests)
        return found


def for_otter(notebook: Notebook) -> Notebook:
    """Make an otter notebook of one of nbgrader's: the same cells, and its own call as the test."""
    cells: list[dict[str, Any]] = [_code("import otter\n\ngrader = otter.Notebook()")]
    for cell in notebook["cells"]:
        name = grade_id(cell) or ""
        if name.endswith(TEST_SUFFIX):
            cells.append(_code(f'grader.check("{name.removesuffix(TEST_SUFFIX)}")'))
        else:
            cells.append({**cell, "metadata": {}})
    return {**notebook, "cells": [{**cell, "id": f"c{i}"} for i, cell in enumerate(cells)]}


def _code(source: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "metadata": {},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


HIDDEN_CASES = """\
### BEGIN HIDDEN TESTS
from vramlab_classroom.judge import notebook_api
from vramlab_classroom.judge.judge import shared_judge
notebook_api.shared_judge = lambda: shared_judge({seed!r})
### END HIDDEN TESTS
"""


def add_hidden_cases(master: Path) -> None:
    """Let the tests of a master try the cases that `vramlab grade` tries, not the visible alone.

    As nbgrader's hidden tests: students do not get them, and autograde puts them back.
    """
    notebook = json.loads(master.read_text())
    for cell in notebook["cells"]:
        if tested_task({**cell, "source": "".join(cell["source"])}):
            cell["source"] = HIDDEN_CASES.format(seed=SEED) + "".join(cell["source"])
    master.write_text(json.dumps(notebook))


def lay_out_course(
    folder: Path, notebooks: Mapping[str, Notebook], exercise: str, submitted: str
) -> None:
    """Copy the course with one exercise, and hand in."""
    for name in ("nbgrader_config.py", "autograder/nbgrader_config.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "solutions" / exercise, folder / "solutions" / exercise)
    (folder / "autograder" / "hidden_seed.txt").write_text(SEED)
    for student, notebook in notebooks.items():
        place = folder / submitted / student / exercise
        place.mkdir(parents=True)
        (place / f"{exercise}.ipynb").write_text(json.dumps(notebook))


def environment(folder: Path) -> dict[str, str]:
    """Give the variables that all graders run with: one thread for each process, no one's home.

    nbgrader calls alembic, which lies beside this Python.
    """
    dropped = ("VRAMLAB", "PYTHONDONTWRITEBYTECODE")  # all may keep what Python compiles
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {
        **kept,
        "PATH": os.pathsep.join([f"{Path(sys.executable).parent}", os.environ.get("PATH", "")]),
        "PYTHONPATH": f"{ROOT}",
        "OMP_NUM_THREADS": "1",
        "IPYTHONDIR": f"{folder / '.ipython'}",
        "JUPYTER_CONFIG_DIR": f"{folder / '.jupyter'}",
    }


def points_in(url: str, exercise: str) -> dict[str, float | None]:
    """Read the points of all students from one of nbgrader's gradebooks."""
    from nbgrader.api import Gradebook

    with Gradebook(url) as gradebook:
        return {
            submission.student_id: None if submission.needs_manual_grade else submission.score
            for submission in gradebook.assignment_submissions(exercise)
        }
