"""The steps that vramlab adds to `nbgrader autograde` (see autograder/nbgrader_config.py).

`RestoreCells` comes first: whatever a submission did to nbgrader's cells, afterwards each is there
once, with the metadata of the gradebook. `JudgeTasks` stands where nbgrader would execute the
notebook: it asks the judge, and writes the verdicts as the outputs of the test cells, so that
nbgrader's scoring, the formgrader and the feedback pages see them as always. `SaveGrades` is
nbgrader's own, except that what could not be graded has no score, and waits for a human.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from logging import Logger
from pathlib import Path
from textwrap import wrap
from typing import Any

import nbformat
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor, SaveAutoGrades
from traitlets import Bool, Callable, Unicode

from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.follow_through import right_answers
from vramlab_classroom.judge.judge import Judge, shared_judge
from vramlab_classroom.judge.notebooks import TEST_SUFFIX, is_read_by_hand, tasks_with_cells
from vramlab_classroom.judge.seeds import hidden_seed, variant_of
from vramlab_classroom.judge.verdict import Grade, Verdict
from vramlab_classroom.judge.verdict_picture import describe, picture_html
from vramlab_classroom.nbgrader.released_cells import released_cells, restore

Notebook = Any  # nbformat.NotebookNode, whose attributes are its keys
Resources = dict[str, Any]

PAGE_CHARACTERS = 96
"""What a line of output has room for in nbgrader's pages."""

VERDICTS = "vramlab_verdicts"
"""Key of nbgrader's resources under which the verdicts travel from step to step."""


PROBLEM = "vramlab_problem"
"""Key under which travels why nothing of a submission could be graded, if so."""


def _no_sandbox() -> tuple[Sequence[str], str]:
    return (), ""


@cache
def _warn_once(log: Logger, warning: str) -> None:
    log.warning(warning)


class RestoreCells(NbGraderPreprocessor):  # type: ignore[misc]
    """Undoes what a submission did to nbgrader's cells (see `released.py`)."""

    def preprocess(self, nb: Notebook, resources: Resources) -> tuple[Notebook, Resources]:
        """Bring the cells of a submission back to what was released."""
        where = resources["nbgrader"]
        with Gradebook(where["db_url"]) as gradebook:
            released = released_cells(gradebook, where["assignment"], where["notebook"])
        nb.cells = nbformat.from_dict(restore(nb.cells, released))
        for cell in nb.cells:
            # JSON can carry half a surrogate pair, which no file in UTF-8 can.
            cell.source = cell.source.encode("utf-8", "replace").decode()
            if (nb.nbformat, nb.nbformat_minor) < (4, 5):
                cell.pop("id", None)  # cells of older notebooks have none
        return nb, resources


class JudgeTasks(NbGraderPreprocessor):  # type: ignore[misc]
    """Judges the answers of a submission; none of its cells is executed."""

    seed_file = Unicode(
        "hidden_seed.txt",
        help="Holds the seed of the hidden configurations; made if it is not there. Keep it from "
        "learners. The same seed grades the same way.",
    ).tag(config=True)

    masters = Unicode(
        "solutions",
        help="Folder of the masters, whose answers take the place of wrong ones that later answers "
        "build on.",
    ).tag(config=True)

    variant_per_student = Bool(
        False,
        help="Draw other hidden cases for each student, so that what one tells helps no other.",
    ).tag(config=True)

    pool_command = Callable(
        _no_sandbox,
        help="Gives the command that starts Python where answers are judged, and a warning to "
        "print about it if there is any. By default, this Python without a sandbox.",
    ).tag(config=True)

    def preprocess(self, nb: Notebook, resources: Resources) -> tuple[Notebook, Resources]:
        """Put a verdict under every test cell: the one given in `resources`, or the judge's."""
        tests = {task: (cell, cells) for task, cell, cells in tasks_with_cells(nb)}
        verdicts: Mapping[str, Verdict] | None = resources.get(VERDICTS)
        if verdicts is None:
            exercise = find_exercise(resources["nbgrader"]["notebook"])
            cells = {task: cells for task, (_, cells) in tests.items()}
            master = Path(self.masters, exercise.name, f"{exercise.name}.ipynb")
            judge = self._judge()
            if self.variant_per_student:
                judge = judge.variant(variant_of(resources["nbgrader"]["student"]))
            verdicts = judge.judge_all(exercise, cells, right_answers(exercise, master))
        for task, (cell, _) in tests.items():
            verdict = verdicts[task]
            if verdict.grade is Grade.UNGRADED:
                self.log.warning("%s of %s: %s", task, resources["nbgrader"]["student"], verdict)
            cell["outputs"] = verdict_outputs(verdict, cell["metadata"]["nbgrader"]["points"])
        resources[VERDICTS] = {task: verdicts[task] for task in tests}
        return nb, resources

    def _judge(self) -> Judge:
        """Return the one judge of this process: nbgrader makes new steps for every notebook."""
        command, warning = self.pool_command()
        if warning:
            _warn_once(self.log, warning)
        return shared_judge(hidden_seed(Path(self.seed_file)), tuple(command))


class SaveGrades(SaveAutoGrades):  # type: ignore[misc]
    """Saves the scores; leaves open, for a human, what could not be graded."""

    def preprocess(self, nb: Notebook, resources: Resources) -> tuple[Notebook, Resources]:
        """Save the score of every test cell, or a comment if there is no score."""
        nb, resources = super().preprocess(nb, resources)
        where = resources["nbgrader"]
        place = (where["notebook"], where["assignment"], where["student"])
        with Gradebook(where["db_url"]) as gradebook:
            for task, verdict in resources[VERDICTS].items():
                if verdict.grade is Grade.UNGRADED:
                    grade = gradebook.find_grade(f"{task}{TEST_SUFFIX}", *place)
                    grade.auto_score = None
                    grade.needs_manual_grade = True
                    # Also where the submission has lost the answer's cell.
                    gradebook.find_comment(task, *place).auto_comment = str(verdict)
            if problem := resources.get(PROBLEM):
                for grade in gradebook.find_submission_notebook(*place).grades:
                    if is_read_by_hand(grade.name):
                        grade.auto_score = None
                        grade.needs_manual_grade = True
                        gradebook.find_comment(grade.name, *place).auto_comment = problem
            gradebook.db.commit()
        return nb, resources


def verdict_outputs(verdict: Verdict, points: float) -> list[Notebook]:
    """Write a verdict as outputs of its test cell: its text, and its picture if it has one.

    nbgrader's scoring reads them: an error earns nothing, and a number as the cell's result is
    partial credit.

    Args:
        verdict: on the task.
        points: that the cell was released with, of which the answer earns its share.
    """
    if verdict.score:
        text = nbformat.v4.new_output("stream", name="stdout", text=f"{verdict}\n")
    else:
        text = nbformat.v4.new_output(
            "error",
            ename=verdict.grade.name,
            evalue=verdict.message,
            traceback=_wrapped(verdict),
        )
    outputs = [text]
    picture = picture_html(verdict)
    if picture is not None:
        data = {"text/html": picture, "text/plain": describe(verdict)}
        outputs.append(nbformat.v4.new_output("display_data", data=data))
    if verdict.score and verdict.score != verdict.points:
        credit = {"text/plain": f"{verdict.score / verdict.points * points:.12g}"}
        outputs.append(nbformat.v4.new_output("execute_result", data=credit))
    return outputs


def _wrapped(verdict: Verdict) -> list[str]:
    """Return a verdict's lines, its message wrapped: nbgrader's pages cut long lines off."""
    of_message = set(verdict.message.splitlines())
    return [
        part
        for line in str(verdict).splitlines()
        for part in (wrap(line, PAGE_CHARACTERS) if line in of_message else [line]) or [""]
    ]
