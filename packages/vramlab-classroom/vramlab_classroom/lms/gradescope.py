"""A marked submission as the `results.json` that Gradescope reads.

Source: "Autograder Specifications", docs/specs.md of gradescope/autograder_samples (published as
gradescope-autograders.readthedocs.io/en/latest/specs).

Students see the results at once, and may submit again. If results said anything about a hidden
case, a student could find out all of them, one submission after the other. So students see what
`vramlab check` shows for the visible cases, the score and, if it is recognized, the name of the
mistake. Instructors see everything: `run_autograder` prints it.

What could not be graded has no score. The specifications ask for one, at the top or in every test;
a submission without is shown as one on which the autograder failed, instead of as a zero. It is to
be run again, or graded by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.verdict import Grade, Verdict
from vramlab_classroom.lms.archives import Parcel, opened
from vramlab_classroom.run.graded_submission import Marked
from vramlab_classroom.run.submissions import Refused
from vramlab_classroom.run.worker import MarkingConditions, MarkingWork, mark
from vramlab_classroom.sandbox.bubblewrap import NOBODY, LimitsOnly, Sandbox, SandboxError, best

_WITHOUT_SCORE = (
    "This could not be graded, so it has no score yet. That is not a zero: your teachers will look "
    "at it."
)


@dataclass(frozen=True)
class AsNobody(LimitsOnly):
    """A process with limits, as an unprivileged user: it cannot read the seed, nor write results.

    For machines where nothing but one submission is graded, as root: containers of Gradescope.
    """

    name = "nobody"  # plain-english: ok

    def prefix(self, visible: Sequence[Path] = (), hidden: Sequence[Path] = ()) -> list[str]:
        return [
            *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
            *("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
            sys.executable,
        ]


@dataclass(frozen=True)
class GradescopeOutcome:
    """What came of a submission."""

    marked: Marked
    """With the hidden cases: decides the score."""

    visible: Marked
    """Without them: what the student may see."""


def mark_folder(folder: Path, assignment: str, seed: str) -> GradescopeOutcome:
    """Mark the one submission in a folder, in the best sandbox there is.

    Args:
        folder: the student's submission.
        assignment: name of the exercise.
        seed: decides the hidden cases.
    """
    try:
        with opened(folder) as parcels:
            content = _notebook(parcels, assignment).read()
    except Refused as refused:
        unread = Marked("", assignment, "", problem=str(refused))
        return GradescopeOutcome(unread, unread)
    sandbox = _sandbox()
    work = MarkingWork("", assignment, content, released=())
    marked, visible = (
        Marked.from_data(mark(work, MarkingConditions(each, sandbox, hidden=(), versions={})))
        for each in (seed, None)
    )
    return GradescopeOutcome(marked, visible)


def _notebook(parcels: Sequence[Parcel], assignment: str) -> Parcel:
    """Choose the notebook: the one of the right name, or else the only one."""
    notebooks = [parcel for parcel in parcels if parcel.is_notebook]
    named = [parcel for parcel in notebooks if parcel.path.name == f"{assignment}.ipynb"]
    for found in (named, notebooks):
        if len(found) == 1:
            return found[0]
    names = ", ".join(ascii(str(parcel.path)) for parcel in notebooks[:5]) or "no notebook"
    raise Refused(f"Submit one notebook, {assignment}.ipynb; this submission contains {names}.")


def _sandbox() -> Sandbox:
    sandbox, _ = best()
    nobody = AsNobody()
    if isinstance(sandbox, LimitsOnly):
        try:
            nobody.try_out()
        except SandboxError:
            return sandbox
        return nobody
    return sandbox


def results(outcome: GradescopeOutcome, seconds: float) -> dict[str, Any]:
    """Write what came of a submission as Gradescope wants it.

    Args:
        outcome: of the submission.
        seconds: that grading took.
    """
    marked = outcome.marked
    found: dict[str, Any] = {
        "execution_time": round(seconds),
        "output": _summary(marked),
        "output_format": "text",
        "stdout_visibility": "hidden",
        "tests": [
            _test(number, verdict, _feedback(outcome, verdict), with_score=not marked.needs_human)
            for number, verdict in enumerate(marked.verdicts, start=1)
        ],
        "extra_data": {"assignment": marked.assignment, "sha256": marked.sha256},
    }
    return found if marked.points is None else {"score": marked.points, **found}


def details(marked: Marked) -> str:
    """Say everything, the hidden cases included: for instructors."""
    return "\n\n".join(map(str, marked.verdicts)) or marked.problem


def _summary(marked: Marked) -> str:
    if marked.points is not None:
        return f"{marked.assignment}: {marked.points:g} of {marked.max_points} points"
    # Why a task could not be graded can have to do with a hidden case.
    tasks = ", ".join(verdict.task for verdict in marked.ungraded)
    return f"{_WITHOUT_SCORE}\n\n{marked.problem or tasks}"


def _test(number: int, verdict: Verdict, told: str, *, with_score: bool) -> dict[str, Any]:
    test = {
        "name": verdict.task,
        "number": f"{number}",
        "status": "passed" if verdict.grade is Grade.PASSED else "failed",
        "output": told,
        "output_format": "text",
        "visibility": "visible",
    }
    if not with_score:
        return test
    return {"score": verdict.score, "max_score": verdict.points, **test}


def _feedback(outcome: GradescopeOutcome, verdict: Verdict) -> str:
    """Say of a verdict what does not come from hidden cases."""
    visible = outcome.visible.verdict(verdict.task)
    if verdict.grade is Grade.UNGRADED or visible is None:
        return f"{verdict.task}: {Grade.UNGRADED.value}"
    if visible.grade is not Grade.PASSED or verdict.grade is Grade.PASSED:
        return str(replace(visible, earned=verdict.earned, note=verdict.note))
    task = find_exercise(outcome.marked.assignment).task(verdict.task)
    known = {mistake.message for mistake in getattr(task, "mistakes", ())}
    hint = f"\n{verdict.message}" if verdict.message in known else ""
    return f"{verdict.task}: right on the cases that are shown, but not on others{hint}"
