"""The steps that vramlab adds to `nbgrader autograde` (see autograder/nbgrader_config.py).

`RestoreCells` comes first: whatever a submission did to nbgrader's cells, afterwards each is there
once, with the metadata of the gradebook. `JudgeTasks` stands where nbgrader would execute the
notebook: it asks the judge, and writes the verdicts as the outputs of the test cells, so that
nbgrader's scoring, the formgrader and the feedback pages see them as always. `SaveGrades` is
nbgrader's own, except that what could not be graded has no score, and waits for a human.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbgrader.api import Gradebook, SourceCell
from nbgrader.preprocessors import NbGraderPreprocessor, SaveAutoGrades
from traitlets import Unicode

from vramlab.grading.exercises import find_exercise
from vramlab.grading.judge import shared_judge
from vramlab.grading.notebooks import grade_id, tasks_with_cells, tested_task
from vramlab.grading.seeds import hidden_seed
from vramlab.grading.verdict import Grade, Verdict
from vramlab.grading.verdict_picture import describe, picture_html

Notebook = Any  # nbformat.NotebookNode, whose attributes are its keys
Resources = dict[str, Any]

VERDICTS = "vramlab_verdicts"
"""Key of nbgrader's resources under which the verdicts travel from step to step."""


class RestoreCells(NbGraderPreprocessor):  # type: ignore[misc]
    """Undoes what a submission did to nbgrader's cells.

    Left to itself, nbgrader gives up on a notebook, or on the whole class, over a duplicated cell,
    an edited flag or an old schema version.
    """

    def preprocess(self, nb: Notebook, resources: Resources) -> tuple[Notebook, Resources]:
        """Give every released cell its metadata, drop that of all others, add missing tests.

        An answer's cell that lost its metadata needs none: answers are found by what they bind.
        """
        where = resources["nbgrader"]
        with Gradebook(where["db_url"]) as gradebook:
            released = gradebook.find_notebook(where["notebook"], where["assignment"])
            points = {cell.name: cell.max_score for cell in released.grade_cells}
            answers = {cell.name for cell in released.solution_cells}
            metadata = {
                cell.name: _metadata(cell, points.get(cell.name), cell.name in answers)
                for cell in released.source_cells
            }
            seen = set()
            for cell in reversed(nb.cells):  # of two copies, the one further down counts
                name = grade_id(cell)
                cell.metadata.pop("nbgrader", None)
                if name in metadata and name not in seen:
                    cell.metadata["nbgrader"] = metadata[name]
                    seen.add(name)
            for cell in released.source_cells:
                if cell.name in points and cell.name not in seen:
                    self.log.warning("Adding the missing cell %s", cell.name)
                    nb.cells.append(_new_cell(cell, metadata[cell.name], nb))
        return nb, resources


class JudgeTasks(NbGraderPreprocessor):  # type: ignore[misc]
    """Judges the answers of a submission; none of its cells is executed."""

    seed_file = Unicode(
        "hidden_seed.txt",
        help="Holds the seed of the hidden configurations; made if it is not there. Keep it from "
        "learners. The same seed grades the same way.",
    ).tag(config=True)

    def preprocess(self, nb: Notebook, resources: Resources) -> tuple[Notebook, Resources]:
        """Put a verdict under every test cell."""
        exercise = find_exercise(resources["nbgrader"]["notebook"])
        # nbgrader makes its steps anew for every notebook; what was measured is kept.
        judge = shared_judge(hidden_seed(Path(self.seed_file)))
        verdicts = {}
        for task, cell, cells in tasks_with_cells(nb):
            verdict = judge.judge(exercise, task, cells)
            if verdict.grade is Grade.UNGRADED:
                self.log.warning("%s of %s: %s", task, resources["nbgrader"]["student"], verdict)
            cell["outputs"] = verdict_outputs(verdict)
            verdicts[task] = verdict
        resources[VERDICTS] = verdicts
        return nb, resources


class SaveGrades(SaveAutoGrades):  # type: ignore[misc]
    """Saves the scores; leaves open, for a human, what could not be graded."""

    def _add_score(self, cell: Notebook, resources: Resources) -> None:
        super()._add_score(cell, resources)
        verdict = resources[VERDICTS].get(tested_task(cell))
        if verdict is not None and verdict.grade is Grade.UNGRADED:
            grade = self.gradebook.find_grade(
                grade_id(cell), self.notebook_id, self.assignment_id, self.student_id
            )
            grade.auto_score = None
            grade.needs_manual_grade = True
            self.gradebook.db.commit()

    def _add_comment(self, cell: Notebook, resources: Resources) -> None:
        super()._add_comment(cell, resources)
        verdict = resources[VERDICTS].get(grade_id(cell))
        if verdict is not None and verdict.grade is Grade.UNGRADED:
            comment = self.gradebook.find_comment(
                grade_id(cell), self.notebook_id, self.assignment_id, self.student_id
            )
            comment.auto_comment = str(verdict)
            self.gradebook.db.commit()


def _metadata(cell: SourceCell, points: float | None, is_answer: bool) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "schema_version": 3,
        "grade_id": cell.name,
        "cell_type": cell.cell_type,
        "checksum": cell.checksum,
        "grade": points is not None,
        "locked": cell.locked,
        "solution": is_answer,
        "task": False,
    }
    return metadata if points is None else {**metadata, "points": points}


def _new_cell(cell: SourceCell, metadata: dict[str, Any], nb: Notebook) -> Notebook:
    if cell.cell_type == "code":
        new = nbformat.v4.new_code_cell(cell.source)
    else:
        new = nbformat.v4.new_markdown_cell(cell.source)
    new.metadata["nbgrader"] = metadata
    if (nb.nbformat, nb.nbformat_minor) < (4, 5):
        del new["id"]  # cells of older notebooks have none
    return new


def verdict_outputs(verdict: Verdict) -> list[Notebook]:
    """Write a verdict as outputs of its test cell: its text, and its picture if it has one.

    nbgrader's scoring reads the first: an error earns nothing.
    """
    if verdict.grade is Grade.PASSED:
        text = nbformat.v4.new_output("stream", name="stdout", text=f"{verdict}\n")
    else:
        text = nbformat.v4.new_output(
            "error",
            ename=verdict.grade.name,
            evalue=verdict.message,
            traceback=str(verdict).splitlines(),
        )
    picture = picture_html(verdict)
    if picture is None:
        return [text]
    data = {"text/html": picture, "text/plain": describe(verdict)}
    return [text, nbformat.v4.new_output("display_data", data=data)]
