"""A class in a temporary folder: submissions go in, nbgrader autogrades, scores come out."""

from __future__ import annotations

import ast
import copy
import json
import logging
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nbformat.warnings import DuplicateCellId
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from quick_gradebooks import make_gradebooks_quick
from sqlalchemy.exc import SAWarning
from traitlets.config import Config

from vramlab_classroom.judge.exercises import WORKSHOP
from vramlab_classroom.judge.notebooks import TEST_SUFFIX, grade_id
from vramlab_classroom.nbgrader.gradebooks import Ungraded, ungraded
from vramlab_classroom.nbgrader.release import course_config
from vramlab_classroom.sandbox.bubblewrap import LimitsOnly

make_gradebooks_quick()

ROOT = Path(__file__).parents[2]
SEED = "the seed of the tests"

Notebook = dict[str, Any]


class Classroom:
    """A course with one assignment, laid out and configured as in the repository.

    Without `has_sandbox`, answers are judged under limits alone, by one process for all courses of
    a test run: each sandbox would import torch again.
    """

    def __init__(self, folder: Path, exercise: str, *, has_sandbox: bool = False) -> None:
        self.folder = folder
        self.exercise = exercise
        shutil.copytree(ROOT / "solutions" / exercise, folder / "solutions" / exercise)
        (folder / "autograder").mkdir()
        for name in ("nbgrader_config.py", "autograder/nbgrader_config.py"):
            shutil.copy(ROOT / name, folder / name)
        (folder / "autograder" / "hidden_seed.txt").write_text(SEED)
        self.config: Config = course_config(folder)
        self.config.CourseDirectory.assignment_id = exercise
        if not has_sandbox:
            self.config.JudgeTasks.pool_command = lambda: (LimitsOnly().prefix(), "")
        gradebook = _empty_gradebook(self.config.CourseDirectory.course_id)
        (folder / "autograder" / "gradebook.db").write_bytes(gradebook)
        _convert(GenerateAssignment, self.config)

    @property
    def solution(self) -> Notebook:
        return read(self.folder / "solutions" / self.exercise / f"{self.exercise}.ipynb")

    @property
    def released(self) -> Notebook:
        return read(self.folder / "exercises" / self.exercise / f"{self.exercise}.ipynb")

    def submit(self, student: str, notebook: Notebook | str) -> None:
        """Put a submission where nbgrader looks for it; a str is written as it is."""
        folder = self.folder / "autograder" / "submitted" / student / self.exercise
        folder.mkdir(parents=True, exist_ok=True)
        text = notebook if isinstance(notebook, str) else json.dumps(notebook)
        (folder / f"{self.exercise}.ipynb").write_text(text)

    def autograde(self, *, again: bool = False) -> bool:
        """Run nbgrader's autograde; return whether it found every submission in order."""
        self.config.Autograde.force = again
        try:
            _convert(Autograde, self.config)
        except NbGraderException:
            return False
        return True

    def scores(self) -> dict[str, dict[str, float | None]]:
        """Give every student's score per task, from the gradebook; None if there is none."""
        with self.gradebook() as gradebook:
            return {
                submission.student.id: {
                    grade.name.removesuffix(TEST_SUFFIX): grade.auto_score
                    for notebook in submission.notebooks
                    for grade in notebook.grades
                }
                for submission in gradebook.assignment_submissions(self.exercise)
            }

    def ungraded(self) -> list[Ungraded]:
        with self.gradebook() as gradebook:
            return ungraded(gradebook, self.exercise)

    def verdict(self, student: str, task: str) -> str:
        """Give what the feedback page will show below the test of a task."""
        folder = self.folder / "autograder" / "autograded" / student / self.exercise
        for cell in read(folder / f"{self.exercise}.ipynb")["cells"]:
            if grade_id(cell) == f"{task}{TEST_SUFFIX}":
                output = cell["outputs"][0]  # the picture comes second
                if output["output_type"] == "error":
                    return "\n".join([*output["traceback"], output["evalue"]])
                return str(output["text"])
        raise LookupError(f"{student} has no test of {task}")

    def gradebook(self) -> Gradebook:
        return Gradebook(self.config.CourseDirectory.db_url)


@cache
def _empty_gradebook(course_id: str) -> bytes:
    """Make an empty gradebook once: nbgrader starts another program for each new one."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "gradebook.db")
        Gradebook(f"sqlite:///{path}", course_id).close()
        return path.read_bytes()


def _convert(converter: type[Autograde] | type[GenerateAssignment], config: Config) -> None:
    step = converter(CourseDirectory(config=config), config=config)
    step.log.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # nbgrader 0.9.6 makes SQLAlchemy warn about its own session whenever a submission is new.
        warnings.filterwarnings("ignore", "Object of type <Submitted", SAWarning)
        # A submission with two cells of one id is repaired, with a warning.
        warnings.simplefilter("ignore", DuplicateCellId)
        step.start()


def read(path: Path) -> Notebook:
    notebook: Notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
    return notebook


def cell(notebook: Notebook, name: str) -> dict[str, Any]:
    """Find the cell with nbgrader's name `name`."""
    (found,) = (cell for cell in notebook["cells"] if grade_id(cell) == name)
    return found


def with_cells(notebook: Notebook, sources: Mapping[str, str]) -> Notebook:
    """Copy a notebook with the sources of some cells replaced."""
    changed = copy.deepcopy(notebook)
    for name, source in sources.items():
        cell(changed, name)["source"] = source
    return changed


@dataclass(frozen=True)
class WrongAnswer:
    """One file of wrong_answers/: an answer to one task, and what must become of it."""

    name: str
    source: str
    task: str
    """The task whose cell it replaces: the first that it binds."""

    loses: frozenset[str]
    """The tasks that must lose all their points; all others must keep them."""

    leaves: float
    """What is left of the points of its task, where that has partial credit."""

    says: str
    """Part of the verdict on the task."""


def wrong_answers(exercise: str, tasks: list[str]) -> list[WrongAnswer]:
    """Read the wrong answers to an exercise."""
    rooms = ROOT / "tests" / "course"
    if exercise.startswith(WORKSHOP):
        folder = rooms / "workshops" / "wrong_answers" / exercise
    else:
        folder = rooms / f"l{exercise}" / "wrong_answers"
    return [_wrong_answer(path, tasks) for path in sorted(folder.glob("*.py"))]


def _wrong_answer(path: Path, tasks: list[str]) -> WrongAnswer:
    source = path.read_text()
    tree = ast.parse(source)
    fields = dict(
        line.split(": ", 1)
        for line in (ast.get_docstring(tree) or "").splitlines()
        if line.startswith(("loses: ", "leaves: ", "says: "))
    )
    bound = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    bound += [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    task = next(name for name in bound if name in tasks)
    loses = frozenset(fields["loses"].split(", "))
    leaves = float(fields.get("leaves", 0))
    return WrongAnswer(path.stem, source, task, loses, leaves, fields["says"])
