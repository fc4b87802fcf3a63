"""What a worker does: marks one submission, or makes one page, from data alone.

A worker is a process that grades many submissions. It keeps one job pool, so that what is slow to
start is started once; all that a learner has written is read and run there, in forks. A pool does
one thing at a time: workers of a cluster that have several threads use it in turn.
"""

from __future__ import annotations

import atexit
import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

from vramlab.errors import VramlabError
from vramlab.units import MIB
from vramlab_classroom.judge import replies
from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.follow_through import right_alone
from vramlab_classroom.judge.job_pool import JobLate, JobPool, JobPoolError
from vramlab_classroom.judge.judge import Judge
from vramlab_classroom.judge.task import Exercise
from vramlab_classroom.judge.truths import SharedTruths
from vramlab_classroom.judge.verdict import Grade, Verdict
from vramlab_classroom.nbgrader.released_cells import ReleasedCell
from vramlab_classroom.run.graded_submission import Marked
from vramlab_classroom.run.versions import versions
from vramlab_classroom.sandbox.bubblewrap import Sandbox, SandboxError

READ_CPU_SECONDS = 20
READ_REPLY_BYTES = 64 * MIB
"""JSON writes a character with up to twelve, and repeats all sources as answers."""

PAGE_CPU_SECONDS = 30
PAGE_REPLY_BYTES = 64 * MIB


_pool_is_busy = Lock()


class UnfitWorkerError(VramlabError):
    """A worker cannot grade as this run does; so it delivers no results."""


class OtherVersionsError(UnfitWorkerError):
    """A worker has other versions than the machine that sends it work."""


class OtherSandboxError(UnfitWorkerError):
    """On a worker, the sandbox does not work that works where the work comes from."""


@dataclass(frozen=True)
class MarkingConditions:
    """What holds for all work of a run."""

    seed: str | None
    """Decides the hidden cases; None for the visible ones only."""

    sandbox: Sandbox
    """Where submissions are read and judged."""

    hidden: tuple[Path, ...]
    """Folders that must not be seen there, if a worker has them at all: the course."""

    versions: Mapping[str, str]
    """Of the machine that sends the work: see `versions.py`."""

    truths: Path | None = None
    """Folder in which the workers of that machine share what they measure."""

    @property
    def are_of_this_machine(self) -> bool:
        """Whether the run was begun here, where its sandbox has been tried out."""
        return self.truths is not None and self.truths.is_dir()


@dataclass(frozen=True)
class MarkingWork:
    """A submission to be marked."""

    student: str
    assignment: str
    notebook: bytes
    released: tuple[ReleasedCell, ...]
    """The cells of the exercise."""

    rights: Mapping[str, str] = field(default_factory=dict)
    """Right answers that later ones may build on: see `follow_through.py`."""

    variant: str = ""
    """Decides the hidden cases besides the seed; see `Judge.variant`."""


def mark(work: MarkingWork, conditions: MarkingConditions) -> dict[str, Any]:
    """Mark a submission.

    Returns:
        A `Marked`, as data.

    Raises:
        UnfitWorkerError: this worker's verdicts would not be those of another.
    """
    with _pool_is_busy:
        return _mark(work, conditions)


def _mark(work: MarkingWork, conditions: MarkingConditions) -> dict[str, Any]:
    _check_fitness(conditions)
    exercise = find_exercise(work.assignment)
    pool = _pool(conditions.sandbox, conditions.hidden)
    judge = _judge(conditions.sandbox, conditions.hidden, conditions.seed, conditions.truths)
    judge = judge.variant(work.variant) if work.variant else judge
    marked = Marked(work.student, work.assignment, sha256(work.notebook).hexdigest())
    read = _read(pool, exercise, work)
    if "problem" in read:
        return replace(marked, problem=read["problem"]).as_data()
    verdicts: list[Verdict] = []
    for task in exercise.tasks:
        verdicts.append(_verdict(judge, exercise, task.name, read, verdicts))
    return replace(marked, verdicts=tuple(verdicts), notebook=read["notebook"]).as_data()


def page(order: Mapping[str, Any], conditions: MarkingConditions) -> str:
    """Make a feedback page.

    Args:
        order: see `page_orders.py`.
        conditions: of the run.

    Returns:
        HTML.

    Raises:
        UnfitWorkerError: this worker cannot make any.
        VramlabError: it could not be made, not even without the learner's own text.
    """
    with _pool_is_busy:
        return _page(order, conditions)


def _page(order: Mapping[str, Any], conditions: MarkingConditions) -> str:
    _check_fitness(conditions)
    pool = _pool(conditions.sandbox, conditions.hidden)
    for plainly in (False, True):
        try:
            made = pool.call(
                "vramlab_classroom.run.pages",
                "render",
                cpu_seconds=PAGE_CPU_SECONDS,
                reply_bytes=PAGE_REPLY_BYTES,
                arguments={"order": order, "plainly": plainly},
            )
        except (JobPoolError, JobLate) as error:
            failure = error
        else:
            return str(made["html"])
    raise VramlabError(f"{failure}")


def _read(pool: JobPool, exercise: Exercise, work: MarkingWork) -> Mapping[str, Any]:
    arguments = {
        "data": base64.b64encode(work.notebook).decode(),
        "released": [asdict(cell) for cell in work.released],
        "tasks": [task.name for task in exercise.tasks],
        "rights": dict(work.rights),
    }
    for finding in (True, False):
        try:
            read: dict[str, Any] = pool.call(
                "vramlab_classroom.run.reading",
                "read",
                cpu_seconds=READ_CPU_SECONDS,
                reply_bytes=READ_REPLY_BYTES,
                arguments={**arguments, "finding": finding},
            )
        except (JobPoolError, JobLate) as error:
            failure = error
            continue
        if "problem" in read:
            return {"problem": replies.printable(read["problem"])}
        if finding:
            read["found"] = {task: replies.found(each) for task, each in read["found"].items()}
        return {**read, "rights": work.rights}
    return {"problem": f"The notebook could not be read: {failure}."}


def _verdict(
    judge: Judge,
    exercise: Exercise,
    task: str,
    read: Mapping[str, Any],
    earlier: Sequence[Verdict],
) -> Verdict:
    def judged() -> Verdict:
        right = right_alone(earlier)
        if "found" in read:
            return judge.judge_found(exercise, task, read["found"][task], right)
        return judge.judge(exercise, task, read["cells"][task], read["rights"], right)

    verdict = judged()
    # Try again if it is not the answer's fault: the machine may have been short of memory.
    return judged() if verdict.grade is Grade.UNGRADED else verdict


def _check_fitness(conditions: MarkingConditions) -> None:
    _check_versions(conditions.versions)  # also here: another environment may have started it
    if not conditions.are_of_this_machine:
        _try_out(conditions.sandbox)


def _check_versions(expected: Mapping[str, str]) -> None:
    for package, there in expected.items():
        here = versions()[package]
        if here != there:
            raise OtherVersionsError(
                f"a worker has {package} {here}, but this machine has {there}; "
                "install the same on both, so that both come to the same verdicts"
            )


@cache
def _try_out(sandbox: Sandbox) -> None:
    try:
        sandbox.try_out()
    except SandboxError as error:
        raise OtherSandboxError(f"on a worker, {error}") from None


@cache
def _pool(sandbox: Sandbox, hidden: tuple[Path, ...]) -> JobPool:
    pool = JobPool(sandbox.prefix(hidden=hidden))
    atexit.register(pool.close)
    return pool


@cache
def _judge(
    sandbox: Sandbox, hidden: tuple[Path, ...], seed: str | None, truths: Path | None
) -> Judge:
    shared = SharedTruths(truths) if truths and truths.is_dir() else None
    return Judge(_pool(sandbox, hidden), seed, shared)
