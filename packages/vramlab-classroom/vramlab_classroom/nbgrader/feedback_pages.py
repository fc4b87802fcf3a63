"""What nbgrader's feedback pages show in another way: safe text, no false zero, names of tasks.

nbgrader's page has a score in the header of every task and on top, and writes 0.0 where there is
none. `GetScores` tells the page which scores are missing, and the filters, by which nbgrader's
template writes numbers, write that. See `GenerateFeedback` and `HTMLExporter` in
autograder/nbgrader_config.py.
"""

from __future__ import annotations

import re
from typing import Any

from jinja2.filters import do_float, do_round
from nbconvert.exporters import HTMLExporter
from nbgrader.preprocessors import GetGrades
from nbgrader.utils import is_grade

from vramlab_classroom.judge.notebooks import TEST_SUFFIX
from vramlab_classroom.nbgrader.safe_pages import safe_markdown

Notebook = Any  # nbformat.NotebookNode, whose attributes are its keys
Resources = dict[str, Any]

NO_SCORE = "not graded"


class GetScores(GetGrades):  # type: ignore[misc]
    """Puts scores into a notebook; a missing score is None, instead of nbgrader's zero."""

    def preprocess(self, nb: Notebook, resources: Resources) -> tuple[Notebook, Resources]:
        """Add the scores of the graded cells, and their sum if all of them have one."""
        nb, resources = super().preprocess(nb, resources)
        if any(is_grade(cell) and cell.metadata.nbgrader["score"] is None for cell in nb.cells):
            resources["nbgrader"]["score"] = None
        return nb, resources

    def preprocess_cell(
        self, cell: Notebook, resources: Resources, cell_index: int
    ) -> tuple[Notebook, Resources]:
        """Add the score of a cell."""
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        if is_grade(cell):
            where = (self.notebook_id, self.assignment_id, self.student_id)
            grade = self.gradebook.find_grade(cell.metadata.nbgrader["grade_id"], *where)
            if grade.auto_score is None and grade.manual_score is None:
                cell.metadata.nbgrader["score"] = None
        return cell, resources


_TEST_CELL = re.compile(rf'(<a href="#(\w+){re.escape(TEST_SUFFIX)}">)Test cell</a>')
"""A task in the list on top of a page, as nbgrader's template writes it."""


def with_task_names(page: str) -> str:
    """Name the tasks in the list on top of a page, in which nbgrader calls each "Test cell"."""
    return _TEST_CELL.sub(r"\1\2</a>", page)


class FeedbackExporter(HTMLExporter):
    """Makes pages that name the tasks."""

    def from_notebook_node(
        self, nb: Notebook, resources: Resources | None = None, **options: Any
    ) -> tuple[Any, Resources]:
        """Make the page of a notebook."""
        page, resources = super().from_notebook_node(nb, resources, **options)
        return with_task_names(page), resources


def as_float(value: Any, *arguments: Any) -> object:
    """Do what jinja's filter of that name does, but leave a missing number missing."""
    return value if value is None else do_float(value, *arguments)


def rounded(value: Any, *arguments: Any) -> object:
    """Do what jinja's filter `round` does, but say of a missing number that it is."""
    return NO_SCORE if value is None else do_round(value, *arguments)


PAGE_FILTERS = {"markdown2html": safe_markdown, "float": as_float, "round": rounded}
"""For `HTMLExporter.filters`."""
