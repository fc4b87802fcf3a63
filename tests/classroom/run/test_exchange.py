"""nbgrader's own exchange, as on a JupyterHub, works with this course's folders and settings."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
from nbgrader.auth import Authenticator
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange.default import (
    ExchangeCollect,
    ExchangeFetchAssignment,
    ExchangeFetchFeedback,
    ExchangeReleaseAssignment,
    ExchangeReleaseFeedback,
    ExchangeSubmit,
)
from nbgrader.exchange.default.exchange import Exchange
from nbgrader.utils import get_username
from traitlets.config import Config

from vramlab_classroom.nbgrader.course import find_course
from vramlab_classroom.run.gradebook_writer import Book
from vramlab_classroom.run.submissions import find_submissions

ROOT = Path(__file__).parents[3]
EXERCISE = "02_pages_and_blocks"


def _do(step: type[Exchange], config: Config) -> None:
    made = step(
        coursedir=CourseDirectory(config=config),
        authenticator=Authenticator(config=config),
        config=config,
    )
    made.log.setLevel(logging.ERROR)
    made.start()


# nbgrader 0.9.6 reads timestamp.txt in release_feedback and leaves it open.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_release_fetch_submit_collect_and_feedback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher, student, exchange = (tmp_path / name for name in ("teacher", "student", "exchange"))
    for folder in (teacher / "autograder", student, exchange):
        folder.mkdir(parents=True)
    exchange.chmod(0o777)
    shutil.copytree(ROOT / "exercises" / EXERCISE, teacher / "exercises" / EXERCISE)
    for name in ("nbgrader_config.py", "autograder/nbgrader_config.py"):
        shutil.copy(ROOT / name, teacher / name)
    course = find_course(teacher)
    teaching = Config({**course.config, "Exchange": {"root": str(exchange)}})
    teaching.CourseDirectory.assignment_id = EXERCISE
    learning = Config({"Exchange": {"root": str(exchange)}})
    learning.CourseDirectory = Config(
        course_id="vramlab", root=str(student), assignment_id=EXERCISE
    )

    _do(ExchangeReleaseAssignment, teaching)
    monkeypatch.chdir(student)
    _do(ExchangeFetchAssignment, learning)
    notebook = student / EXERCISE / f"{EXERCISE}.ipynb"
    content = json.loads(notebook.read_text())
    content["cells"][-1]["source"] = "# my answer"
    notebook.write_text(json.dumps(content))
    _do(ExchangeSubmit, learning)
    _do(ExchangeCollect, teaching)

    (submission,), strays = find_submissions(course.submitted, {EXERCISE})
    assert not strays
    assert submission.student == get_username()
    assert submission.notebook() == notebook.read_bytes()
    assert submission.timestamp()

    with Book(course) as book:
        book.return_page(submission.student, EXERCISE, "well done")
    _do(ExchangeReleaseFeedback, teaching)
    _do(ExchangeFetchFeedback, learning)
    (fetched,) = (student / EXERCISE / "feedback").rglob("*.html")
    assert fetched.read_text() == "well done"
