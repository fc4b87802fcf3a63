"""Grades a class: from what was submitted to gradebook, feedback, and a list for humans.

`grade` is what `vramlab grade` calls. It keeps a bounded number of submissions in flight; this
process enters one while workers mark the next. Every step is in the journal, so that a run that
was interrupted anywhere is continued by the next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.judge.follow_through import right_answers
from vramlab_classroom.judge.seeds import hidden_seed, variant_of
from vramlab_classroom.nbgrader.course import Course
from vramlab_classroom.nbgrader.released_cells import ReleasedCell, changed_since_release
from vramlab_classroom.run.attempts import Attempts
from vramlab_classroom.run.cluster import Workers
from vramlab_classroom.run.gradebook_writer import Book, NotEntered
from vramlab_classroom.run.graded_submission import Marked
from vramlab_classroom.run.journal import Entry, Journal
from vramlab_classroom.run.needs_review import (
    FEEDBACK,
    LATENESS,
    Attention,
    once_each,
    without_score,
)
from vramlab_classroom.run.progress import Progress
from vramlab_classroom.run.submissions import (
    Refused,
    Stray,
    Submission,
    find_submissions,
    select,
    select_strays,
)
from vramlab_classroom.run.versions import fingerprint, versions
from vramlab_classroom.run.worker import (
    MarkingConditions,
    MarkingWork,
    UnfitWorkerError,
    mark,
    page,
)
from vramlab_classroom.sandbox.bubblewrap import best, named

IN_FLIGHT_PER_WORKER = 3
"""So many submissions are with the workers for each of them: enough that none ever waits."""


@dataclass(frozen=True)
class Options:
    """What a teacher asked for."""

    assignments: tuple[str, ...] = ()
    """Names or numbers of exercises; none means all that were submitted."""

    students: tuple[str, ...] = ()
    """Names, or patterns such as `b*`; none means all."""

    workers: int | None = None
    """Processes on this machine; by default one per CPU."""

    cluster: str | None = None
    """Address of a Dask scheduler, instead of workers on this machine."""

    sandbox: str | None = None
    """Name of a sandbox; by default the best that works here."""

    image: str = "vramlab"
    """Of containers."""

    again: bool = False
    """Grade what is graded already, too."""

    feedback: bool = True
    """Make feedback pages."""


@dataclass
class ClassOutcome:
    """What came of a run."""

    graded: int = 0
    """Submissions that were marked and entered in this run."""

    kept: int = 0
    """Submissions that were graded before, and have not changed."""

    attention: list[Attention] = field(default_factory=list)
    strays: list[Stray] = field(default_factory=list)
    """What lies among the submissions and is none."""

    left: list[Stray] = field(default_factory=list)
    """Files beside the notebooks that were entered in this run, which were not copied."""

    seconds: float = 0.0

    @property
    def needs_human(self) -> bool:
        """Whether anything is left to look at."""
        return bool(self.attention or self.strays)


def grade(course: Course, options: Options, progress: type[Progress] = Progress) -> ClassOutcome:
    """Grade what was submitted, and enter it.

    Args:
        course: where.
        options: what, and how.
        progress: made with the number of submissions.

    Raises:
        VramlabError: nothing can be graded at all, or the run could not go on; what was graded
            until then is kept.
    """
    names = exercise_names()
    wanted = [find_exercise(name).name for name in options.assignments]
    found, strays = find_submissions(course.submitted, names)
    chosen = select(found, wanted, options.students)
    outcome = ClassOutcome(strays=select_strays(strays, course.submitted, options.students))
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(course.journal))
        book = stack.enter_context(Book(course))
        run = _Run(course, options, journal, book, outcome, progress(len(chosen)))
        stack.callback(run.close)
        run.all(chosen)
        outcome.attention = once_each(outcome.attention, list(without_score(book, chosen)))
    return outcome


@dataclass(frozen=True)
class _Exercise:
    """What a run has to know about an exercise."""

    released: tuple[ReleasedCell, ...]
    rights: Mapping[str, str]
    """Right answers that later ones may build on."""

    fingerprint: str
    due: datetime | None
    entered: Mapping[str, timedelta | None]
    """Students who had a submission in the gradebook when the run began, and how much more time
    each has."""

    open: frozenset[str]
    """Students of whose submissions some had no score then."""


@dataclass(frozen=True)
class _Step:
    """A piece of work that is with a worker."""

    submission: Submission
    timestamp: str | None
    sha256: str = ""
    """Of the notebook that is being marked."""

    page_of: int | None = None
    """Number of the marking that a page is made of; None for marking."""

    needs_human: bool = False
    """Whether any of the marking has no score."""


class _Run:
    """One run: what was begun, and what is to be done next with each submission."""

    def __init__(
        self,
        course: Course,
        options: Options,
        journal: Journal,
        book: Book,
        outcome: ClassOutcome,
        progress: Progress,
    ) -> None:
        self._course = course
        self._options = options
        self._journal = journal
        self._book = book
        self._outcome = outcome
        self._progress = progress
        self._workers: Workers | None = None
        self._truths: TemporaryDirectory[str] | None = None
        self._attempts = Attempts(config=course.config)
        self._has_variants = course.has_variants
        self._exercises: dict[str, _Exercise] = {}
        self._regraded: set[str] = set()

    def all(self, submissions: Iterable[Submission]) -> None:
        """Grade submissions, a bounded number of them at a time."""
        for submission in submissions:
            self._begin(submission)
            while self._is_full():
                self._continue()
        while self._workers is not None and self._workers.pending:
            self._continue()
        self._outcome.seconds = self._progress.seconds

    def close(self) -> None:
        """End the workers, if there are any."""
        self._progress.end()
        if self._workers is not None:
            self._workers.close()
        if self._truths is not None:
            self._truths.cleanup()

    def _is_full(self) -> bool:
        if self._workers is None:
            return False
        return self._workers.pending >= self._workers.slots * IN_FLIGHT_PER_WORKER

    @cached_property
    def _seed(self) -> str:
        return hidden_seed(self._course.seed_file)

    @cached_property
    def _drawn_by(self) -> str:
        """Describe what decides the hidden cases."""
        options = (self._has_variants, self._attempts.are_counted)
        return f"{self._seed} {options}" if any(options) else self._seed

    def _variant(self, submission: Submission, digest: str) -> str:
        """Name the variant that a submission is judged on."""
        who = (submission.student, submission.assignment)
        attempt = 1
        if self._attempts.are_counted:
            attempts = [each.sha256 for each in self._journal.attempts(*who) if not each.problem]
            attempt += attempts.index(digest) if digest in attempts else len(attempts)
        return variant_of(submission.student if self._has_variants else "", attempt)

    @cached_property
    def _conditions(self) -> MarkingConditions:
        if self._options.sandbox is None:
            sandbox, warning = best()
        else:
            sandbox = named(self._options.sandbox, self._options.image)
            warning = sandbox.warning
        if warning:
            self._progress.say(f"warning: {warning}")
        # Workers of this machine are of this installation.
        expected = versions() if self._options.cluster else {}
        self._truths = TemporaryDirectory(prefix="vramlab-truths-")
        truths = Path(self._truths.name)
        return MarkingConditions(self._seed, sandbox, (self._course.root,), expected, truths)

    def _order(
        self, step: _Step, function: Callable[[Any, MarkingConditions], object], what: object
    ) -> None:
        """Give something to the workers, who are started when there is something to do."""
        conditions = self._conditions
        if self._workers is None:
            self._workers = Workers(self._options.workers, self._options.cluster)
        # What is nearly done goes first, so that little is under way when a run is interrupted.
        self._workers.begin(step, function, what, conditions, urgent=step.page_of is not None)

    def _exercise(self, assignment: str) -> _Exercise:
        if assignment not in self._exercises:
            released = self._book.released(assignment)
            exercise = find_exercise(assignment)
            if stale := changed_since_release(exercise, released):
                self._progress.say(f"warning: {stale}")
            master = self._course.solutions / assignment / f"{assignment}.ipynb"
            rights = right_answers(exercise, master)
            self._exercises[assignment] = _Exercise(
                released,
                rights,
                fingerprint(exercise, self._drawn_by, released, rights),
                self._book.due_date(assignment),
                self._book.extensions(assignment),
                frozenset(each.student for each in self._book.ungraded(assignment)),
            )
        return self._exercises[assignment]

    def _begin(self, submission: Submission) -> None:
        """Do the first thing that a submission needs."""
        exercise = self._exercise(submission.assignment)
        entry = self._journal.latest(submission.student, submission.assignment)
        if entry is not None and entry.fingerprint != exercise.fingerprint:
            self._tell_of_regrading(submission.assignment)
        problem = digest = ""
        content = b""
        try:
            timestamp = submission.timestamp()
        except Refused as refused:
            timestamp = None
            self._attend(submission, f"{refused}", LATENESS)
        try:
            content = submission.notebook()
            digest = sha256(content).hexdigest()
        except Refused as refused:
            problem = f"{refused}"
        step = _Step(submission, timestamp, digest)
        if entry is not None and self._is_valid(entry, digest, problem):
            self._keep(step, entry)
        elif problem:
            marked = Marked(submission.student, submission.assignment, "", problem=problem)
            self._enter(step, self._record(marked), marked)
        else:
            who = (submission.student, submission.assignment)
            variant = self._variant(submission, digest)
            work = MarkingWork(*who, content, exercise.released, exercise.rights, variant)
            self._order(step, mark, work)

    def _tell_of_regrading(self, assignment: str) -> None:
        if assignment not in self._regraded:
            self._regraded.add(assignment)
            self._progress.say(
                f"{assignment} has changed since it was graded (its cases, its points, the seed, "
                "or the code that judges): grading it again"
            )

    def _is_valid(self, entry: Entry, digest: str, problem: str) -> bool:
        """Return whether a marking is still that of the submission that is there now."""
        exercise = self._exercises[entry.assignment]
        if self._options.again or entry.fingerprint != exercise.fingerprint:
            return False
        if entry.retry and entry.student in exercise.open:
            return False
        if problem and not entry.sha256:
            return self._journal.marked(entry.number).problem == problem
        return entry.sha256 == digest

    def _keep(self, step: _Step, entry: Entry) -> None:
        """Do what is left to do after an earlier run."""
        student, assignment = entry.student, entry.assignment
        exercise = self._exercises[assignment]
        file = self._course.autograded / student / assignment / f"{assignment}.ipynb"
        is_there = student in exercise.entered and file.exists()
        if not is_there or entry.entered != self._where(step):
            self._enter(step, entry.number, self._journal.marked(entry.number))
        elif self._options.feedback and not entry.returned:
            self._order_page(step, entry.number, self._journal.marked(entry.number))
        else:
            self._outcome.kept += 1
            self._progress.add(graded=False, needs_human=student in exercise.open)

    def _continue(self) -> None:
        """Take back what a worker did, and do what comes next."""
        assert self._workers is not None
        step, result = self._workers.next()
        assert isinstance(step, _Step)
        if isinstance(result, UnfitWorkerError):
            raise result
        if step.page_of is None:
            self._take_marked(step, result)
        else:
            self._take_page(step, step.page_of, result)

    def _take_marked(self, step: _Step, result: object) -> None:
        submission = step.submission
        if isinstance(result, dict):
            marked = Marked.from_data(result)
            retry = bool(marked.ungraded)
        else:
            problem = f"It could not be graded: {type(result).__name__}: {result}"
            marked = Marked(submission.student, submission.assignment, step.sha256, problem=problem)
            retry = True
        self._enter(step, self._record(marked, retry=retry), marked)

    def _record(self, marked: Marked, *, retry: bool = False) -> int:
        fingerprint = self._exercises[marked.assignment].fingerprint
        counted = self._attempts.are_counted
        return self._journal.record(marked, fingerprint, retry=retry, keeps_others=counted)

    def _enter(self, step: _Step, number: int, marked: Marked) -> None:
        try:
            marked = self._entered(step, marked)
        except NotEntered as error:
            self._attend(step.submission, f"{error}")
            self._progress.add(graded=False, needs_human=True)
            return
        self._journal.note_entered(number, self._where(step))
        if self._options.feedback:
            self._order_page(step, number, marked)
        else:
            self._outcome.graded += 1
            self._progress.add(graded=True, needs_human=marked.needs_human)

    def _entered(self, step: _Step, marked: Marked) -> Marked:
        """Enter it; what nbgrader does not take is entered as what it is: for a human."""
        attachments = self._book.attachments(step.submission)
        if self._attempts.are_counted and not marked.problem:
            attempts = self._journal.attempts(marked.student, marked.assignment)
            marked = self._attempts.best_of(marked, attempts)
        try:
            left = self._book.enter(marked, step.timestamp, attachments)
        except NotEntered as error:
            marked = replace(marked, verdicts=(), notebook=None, problem=f"{error}")
            left = self._book.enter(marked, step.timestamp, attachments)
        self._outcome.left += left
        return marked

    def _order_page(self, step: _Step, number: int, marked: Marked) -> None:
        order = self._book.page_order(marked)
        self._order(replace(step, page_of=number, needs_human=marked.needs_human), page, order)

    def _take_page(self, step: _Step, number: int, result: object) -> None:
        submission = step.submission
        if isinstance(result, str):
            self._book.return_page(submission.student, submission.assignment, result)
            self._journal.note_returned(number)
        else:
            self._attend(submission, f"It could not be made: {result}", FEEDBACK)
        self._outcome.graded += 1
        self._progress.add(graded=True, needs_human=step.needs_human)

    def _where(self, step: _Step) -> str:
        """Identify an entry: gradebook, time of submission, lateness, attachments.

        If any of it changes, the marking is entered again.
        """
        # A course may be moved, with a gradebook that lies in it.
        book = self._book.name.replace(f"{self._course.root}/", "")
        facts = [f"{book} {step.timestamp or ''}".strip()]
        exercise = self._exercises[step.submission.assignment]
        if step.timestamp is not None and exercise.due is not None:
            extension = exercise.entered.get(step.submission.student) or timedelta()
            late = json.dumps(dict(self._course.config.LatePenalty), sort_keys=True, default=str)
            facts += [f"due {exercise.due + extension}", late]
        if self._attempts.are_counted:
            facts.append(f"attempts {self._attempts.percent} {self._attempts.most}")
        if attached := self._book.attachments(step.submission).state:
            facts.append(f"with files {attached}")
        return ", ".join(facts)

    def _attend(self, submission: Submission, reason: str, about: str = "") -> None:
        attention = Attention(submission.student, submission.assignment, about, reason)
        self._outcome.attention.append(attention)
