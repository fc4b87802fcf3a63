"""A course in a temporary folder, its submissions, and what its gradebook holds afterwards."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook
from quick_gradebooks import make_gradebooks_quick

from vramlab_classroom.judge.notebooks import grade_id
from vramlab_classroom.nbgrader.course import Course, find_course

make_gradebooks_quick()

ROOT = Path(__file__).parents[2]
EXERCISE = "02_pages_and_blocks"
TIMESTAMP = "2026-01-01 10:00:00 UTC"

Notebook = dict[str, Any]


def make_course(folder: Path, *exercises: str) -> Path:
    """Lay out a course as in the repository, with nothing submitted yet."""
    for name in ("nbgrader_config.py", "autograder/nbgrader_config.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for exercise in exercises or (EXERCISE,):
        shutil.copytree(ROOT / "solutions" / exercise, folder / "solutions" / exercise)
    (folder / "autograder" / "hidden_seed.txt").write_text("the seed of the tests\n")
    return folder


def submit(folder: Path, student: str, content: Notebook | bytes, exercise: str = EXERCISE) -> Path:
    """Hand something in."""
    place = folder / "autograder" / "submitted" / student / exercise
    place.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (place / f"{exercise}.ipynb").write_bytes(data)
    (place / "timestamp.txt").write_text(TIMESTAMP)
    return place


def notebook(kind: str = "solutions", exercise: str = EXERCISE) -> Notebook:
    """Read a notebook of the repository: a solution, or what was released (`exercises`)."""
    content: Notebook = json.loads((ROOT / kind / exercise / f"{exercise}.ipynb").read_text())
    return content


def with_answers(original: Notebook, answers: Mapping[str, str]) -> Notebook:
    """Copy a notebook with some answers replaced."""
    changed = copy.deepcopy(original)
    for cell in changed["cells"]:
        if grade_id(cell) in answers:
            cell["source"] = answers[grade_id(cell) or ""]
    return changed


def gradebook_of(course: Course | Path) -> dict[str, Any]:
    """Give all that a gradebook says about the submissions, in an order of its own."""
    if isinstance(course, Path):
        course = find_course(course)
    with Gradebook(course.db_url) as gradebook:
        return {
            f"{submission.student_id} {assignment.name}": {
                "timestamp": f"{submission.timestamp}",
                "scores": {
                    grade.name: (grade.auto_score, grade.manual_score, grade.needs_manual_grade)
                    for grade in sorted(notebook.grades, key=lambda grade: grade.name)
                },
                "comments": {comment.name: comment.auto_comment for comment in notebook.comments},
                "penalty": notebook.late_submission_penalty,
            }
            for assignment in gradebook.assignments
            for submission in assignment.submissions
            for notebook in submission.notebooks
        }
