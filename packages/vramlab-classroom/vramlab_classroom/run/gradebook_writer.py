"""Enters what was marked: the one writer of gradebook, autograded/ and feedback/.

Every submission goes through nbgrader's own `Autograde`, with all its steps, except that the
notebook is the cleaned one and the verdicts are given. nbgrader opens the gradebook a dozen times
for that and commits some forty times; here all of it shares one connection and one transaction. So
a submission is in the gradebook whole or not at all, and takes a fraction of the time.
"""

from __future__ import annotations

import copy
import json
import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import nbformat
import sqlalchemy
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from sqlalchemy.exc import DBAPIError, SAWarning, SQLAlchemyError
from sqlalchemy.orm import scoped_session, sessionmaker
from traitlets.config import Config

from vramlab.context import Closing
from vramlab.errors import VramlabError
from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.verdict import Grade, Verdict
from vramlab_classroom.nbgrader.course import Course
from vramlab_classroom.nbgrader.feedback_pages import GetScores
from vramlab_classroom.nbgrader.gradebooks import Ungraded, ungraded
from vramlab_classroom.nbgrader.nbgrader_steps import PROBLEM, VERDICTS
from vramlab_classroom.nbgrader.released_cells import ReleasedCell, released_cells
from vramlab_classroom.run import feedback_requests
from vramlab_classroom.run.attachments import Attachments, find_attachments
from vramlab_classroom.run.graded_submission import Marked
from vramlab_classroom.run.submissions import TIMESTAMP, Refused, Stray, Submission, read_plainly

LOCK_SECONDS = 30
"""How long another program, such as the formgrader, may hold the gradebook."""

_EXCHANGE_FILES = (TIMESTAMP, "submission_secret.txt")
"""What nbgrader's `release_feedback` looks for beside a page, if it was submitted through its
exchange. Only the student has the secret, too; the page is found by it."""

MAX_EXCHANGE_FILE_BYTES = 1000

_quiet = logging.getLogger("vramlab_classroom.nbgrader")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class GradebookError(VramlabError):
    """The gradebook, or a folder beside it, cannot be used; nothing that was marked is lost."""


class NotEntered(VramlabError):
    """nbgrader did not take one submission; the message says why."""


class Book(Closing):
    """The gradebook of a course, open for the one who enters."""

    def __init__(self, course: Course) -> None:
        """Open it; it is made if it is not there.

        Raises:
            GradebookError: it cannot be opened.
        """
        self._course = course
        with self._errors_translated():
            self._gradebook = Gradebook(course.db_url, course.config.CourseDirectory.course_id)
        self._stage = tempfile.TemporaryDirectory(prefix="vramlab-grade-")

    @property
    def name(self) -> str:
        """The gradebook's URL, without its password."""
        return str(self._gradebook.engine.url.render_as_string(hide_password=True))

    def released(self, assignment: str) -> tuple[ReleasedCell, ...]:
        """Return the cells of an exercise, which is put into the gradebook if it is not there.

        Raises:
            GradebookError: it is not there, and there is no master of it.
        """
        with self._errors_translated(), self._one_transaction():
            with suppress(MissingEntry):
                return released_cells(self._gradebook, assignment, assignment)
            _generate(self._course, assignment, Path(self._stage.name))
            return released_cells(self._gradebook, assignment, assignment)

    def due_date(self, assignment: str) -> datetime | None:
        """Return when an assignment is due, in UTC; None without a due date."""
        with self._errors_translated(), self._one_transaction():
            due: datetime | None = self._gradebook.find_assignment(assignment).duedate
            return due

    def extensions(self, assignment: str) -> dict[str, timedelta | None]:
        """List who has a submission of an assignment in the gradebook, and how much more time."""
        with self._errors_translated(), self._one_transaction():
            submissions = self._gradebook.assignment_submissions(assignment)
            return {submission.student_id: submission.extension for submission in submissions}

    def ungraded(self, assignment: str) -> list[Ungraded]:
        """List what of an assignment has no score."""
        with self._errors_translated(), self._one_transaction():
            return ungraded(self._gradebook, assignment)

    def attachments(self, submission: Submission) -> Attachments:
        """List the files submitted next to the notebook."""
        return find_attachments(
            submission.folder, CourseDirectory(config=self._course.config).ignore
        )

    def enter(
        self, marked: Marked, timestamp: str | None, attachments: Attachments | None = None
    ) -> list[Stray]:
        """Enter a marked submission: into the gradebook, and into autograded/.

        Args:
            marked: the submission.
            timestamp: when it was submitted; None if unknown.
            attachments: files submitted next to the notebook.

        Returns:
            What of the attachments was left out.

        Raises:
            NotEntered: nbgrader did not take it; the gradebook is as it was before.
            GradebookError: nothing can be entered at present.
        """
        place = Path(self._stage.name) / marked.student / marked.assignment
        with self._errors_translated():
            try:
                place.mkdir(parents=True)
                notebook = json.dumps(_notebook(marked))
                (place / f"{marked.assignment}.ipynb").write_text(notebook, encoding="utf-8")
                if timestamp:
                    (place / TIMESTAMP).write_text(timestamp, encoding="utf-8")
                left = attachments.copy(place) if attachments else []
                with self._one_transaction():
                    self._convert(marked)
            finally:
                shutil.rmtree(place.parent, ignore_errors=True)
        return left

    def page_order(self, marked: Marked) -> feedback_requests.Order:
        """Write down what the feedback page of an entered submission is made from."""
        path = self._course.autograded / marked.student / marked.assignment
        resources: dict[str, Any] = {
            "unique_key": marked.assignment,
            "nbgrader": {
                "student": marked.student,
                "assignment": marked.assignment,
                "notebook": marked.assignment,
                "db_url": self._course.db_url,
            },
        }
        with self._errors_translated(), self._one_transaction():
            notebook = nbformat.read(path / f"{marked.assignment}.ipynb", as_version=4)
            step = GetScores(config=self._course.config, log=_quiet)
            notebook, resources = step.preprocess(notebook, resources)
        del resources["nbgrader"]["db_url"]  # it may hold a password
        return feedback_requests.order(notebook, resources, self._course.config)

    def return_page(self, student: str, assignment: str, html: str) -> None:
        """Write a feedback page where nbgrader does, whole or not at all."""
        folder = self._course.feedback / student / assignment
        with self._errors_translated():
            folder.mkdir(parents=True, exist_ok=True)
            submitted = self._course.submitted / student / assignment
            for name in _EXCHANGE_FILES:
                with suppress(FileNotFoundError, Refused):
                    content = read_plainly(submitted, name, MAX_EXCHANGE_FILE_BYTES)
                    (folder / name).write_bytes(content)
            new = folder / f".{assignment}.html"
            new.write_text(html, encoding="utf-8")
            new.replace(folder / f"{assignment}.html")

    def close(self) -> None:
        """Close it."""
        self._gradebook.close()
        self._stage.cleanup()

    def _convert(self, marked: Marked) -> None:
        config: Config = copy.deepcopy(self._course.config)
        config.CourseDirectory.submitted_directory = self._stage.name
        config.CourseDirectory.assignment_id = marked.assignment
        config.CourseDirectory.student_id = marked.student
        config.Autograde.force = True
        # It takes the scores away before a run that might fail; here a transaction does that.
        config.Autograde.pop("pre_convert_hook", None)
        folder = CourseDirectory(config=config, log=_quiet)
        converter = _Entering(coursedir=folder, config=config, log=_quiet)
        converter.verdicts = _verdicts(marked)
        converter.problem = marked.problem
        try:
            with warnings.catch_warnings():
                # nbgrader 0.9.6 makes SQLAlchemy warn about its own session.
                warnings.filterwarnings("ignore", "Object of type <Submitted", SAWarning)
                converter.start()
        except NbGraderException as error:
            cause = converter.failure or error
            if isinstance(cause, OSError | SQLAlchemyError):
                raise cause from None
            raise NotEntered(f"nbgrader did not take it: {cause}") from cause

    @contextmanager
    def _one_transaction(self) -> Iterator[None]:
        """Let every `Gradebook` that is opened meanwhile be this one, and commit at the end."""
        with self._gradebook.engine.connect() as connection, connection.begin():
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {LOCK_SECONDS * 1000}")
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            # What a session commits stays within the connection's transaction.
            self._gradebook.db = scoped_session(sessionmaker(autoflush=True, bind=connection))
            try:
                with _shared(self._gradebook):
                    yield
            finally:
                self._gradebook.db.remove()

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise GradebookError(
                f"the gradebook {_shown(self._course.db_url)} cannot be used: {error.orig}. "
                "No results were lost. Fix this problem and run the command again"
            ) from error
        except SQLAlchemyError as error:
            raise GradebookError(
                f"the gradebook {_shown(self._course.db_url)} cannot be used: {error}"
            ) from error
        except ModuleNotFoundError as error:
            raise GradebookError(
                f"the gradebook {_shown(self._course.db_url)} cannot be opened: {error}; "
                "pip install 'vramlab-classroom[nbgrader]'"
            ) from error
        except OSError as error:
            raise GradebookError(
                f"{error.filename or 'a file'} cannot be written: {error.strerror}. "
                "No results were lost. Fix this problem and run the command again"
            ) from error


class _Entering(Autograde):  # type: ignore[misc]
    """nbgrader's `Autograde` with verdicts that were given, which tells why it failed."""

    verdicts: Mapping[str, Verdict]
    problem: str
    failure: Exception | None = None

    def init_notebooks(self) -> None:
        # nbgrader's takes names for patterns: a student called [x] would have no notebooks.
        name = self.coursedir.assignment_id
        folder = self._format_source(name, self.coursedir.student_id)
        self.assignments = {folder: [f"{folder}/{name}.ipynb"]}

    def init_assignment(self, assignment_id: str, student_id: str) -> None:
        with self._failure_kept():
            super().init_assignment(assignment_id, student_id)

    def init_single_notebook_resources(self, notebook_filename: str) -> dict[str, Any]:
        resources: dict[str, Any] = super().init_single_notebook_resources(notebook_filename)
        resources[VERDICTS] = self.verdicts
        resources[PROBLEM] = self.problem
        return resources

    def convert_single_notebook(self, notebook_filename: str) -> None:
        with self._failure_kept():
            super().convert_single_notebook(notebook_filename)

    @contextmanager
    def _failure_kept(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.failure = self.failure or error
            raise


@contextmanager
def _shared(gradebook: Gradebook) -> Iterator[None]:
    """Let opening any gradebook give this one, and closing it do nothing."""

    def reuse(self: Gradebook, *arguments: object, **named: object) -> None:
        self.__dict__ = gradebook.__dict__

    opening, closing = Gradebook.__init__, Gradebook.close
    Gradebook.__init__, Gradebook.close = reuse, lambda self: None
    try:
        yield
    finally:
        Gradebook.__init__, Gradebook.close = opening, closing


def _generate(course: Course, assignment: str, scratch: Path) -> None:
    """Put an exercise into the gradebook; what nbgrader releases meanwhile is thrown away."""
    master = course.solutions / assignment / f"{assignment}.ipynb"
    if not master.exists():
        raise GradebookError(
            f"{assignment} is not in the gradebook, and its master {master} is not there"
        )
    config: Config = copy.deepcopy(course.config)
    config.CourseDirectory.release_directory = str(scratch / "released")
    config.CourseDirectory.assignment_id = assignment
    folder = CourseDirectory(config=config, log=_quiet)
    try:
        GenerateAssignment(coursedir=folder, config=config, log=_quiet).start()
    except NbGraderException as error:
        raise GradebookError(
            f"nbgrader cannot put {assignment} into the gradebook; "
            f"`nbgrader generate_assignment {assignment}` says why"
        ) from error


def _verdicts(marked: Marked) -> dict[str, Verdict]:
    if not marked.problem:
        return {verdict.task: verdict for verdict in marked.verdicts}
    return {
        task.name: Verdict(task.name, task.points, Grade.UNGRADED, marked.problem)
        for task in find_exercise(marked.assignment).tasks
    }


def _notebook(marked: Marked) -> Mapping[str, Any]:
    """Return the notebook to enter; for a submission that could not be read, one that says so."""
    if marked.notebook is not None:
        return marked.notebook
    text = f"# This submission could not be graded\n\n{marked.problem}\n\nA human will look at it."
    cell = {"cell_type": "markdown", "id": "problem", "metadata": {}, "source": text}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}


def _shown(db_url: str) -> str:
    try:
        return sqlalchemy.make_url(db_url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return "that was asked for"
