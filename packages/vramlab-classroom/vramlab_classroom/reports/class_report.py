"""What a class did with an assignment: for the teacher, as data and as text.

Scores come from the gradebook, so that what was settled by hand counts; what the wrong answers have
in common comes from the journal of `vramlab grade`. `class_page.py` makes a page of it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from vramlab_classroom.judge.exercises import UnknownExerciseError, find_exercise
from vramlab_classroom.judge.notebooks import grade_id
from vramlab_classroom.judge.verdict import Grade, Spent, Verdict
from vramlab_classroom.nbgrader.scores import Score, ScoreStatus
from vramlab_classroom.nbgrader.scores_csv import number
from vramlab_classroom.reports.board import Board, board, board_lines
from vramlab_classroom.run.graded_submission import Marked

ALL = "all points"
SOME = "some points"
NONE = "no points"
UNANSWERED = "not answered"
UNGRADED = Grade.UNGRADED.value
OUTCOMES = (ALL, SOME, NONE, UNANSWERED, UNGRADED)
"""What can become of a task."""

MOST_MESSAGES = 6
"""Of each task; what only a few met is summed up."""

_EXAMPLE_LINES = 20
_BAR_CHARACTERS = 30
_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Message:
    """A feedback message that several wrong answers to a task got."""

    text: str
    """The text that one of them got; numbers may differ."""

    count: int
    student: str
    """One of those who met it."""

    answer: str
    """What that student wrote; empty if it is not in a cell of its own."""


@dataclass(frozen=True)
class TaskReport:
    """How a class did on one task."""

    task: str
    max_score: float
    outcomes: dict[str, int]
    """How many students got what, by `OUTCOMES`; only what occurs."""

    messages: tuple[Message, ...]
    """Feedback that wrong answers got, the most frequent first."""

    other_messages: int
    """Number of wrong answers with other feedback."""

    board: Board | None = None
    """Of a workshop, if a student has solved it."""

    is_core: bool = False
    """Whether the exercise marks it as one of its core tasks."""

    @property
    def title(self) -> str:
        """Its name, with a star if it is a core task."""
        return f"★ {self.task}" if self.is_core else self.task

    @property
    def submitted(self) -> int:
        return sum(self.outcomes.values())

    @property
    def success(self) -> float | None:
        """Share of the students with all points, among those who have a score."""
        scored = self.submitted - self.outcomes.get(UNGRADED, 0)
        return self.outcomes.get(ALL, 0) / scored if scored else None


@dataclass(frozen=True)
class ClassReport:
    """How a class did on an assignment."""

    assignment: str
    max_score: float
    scores: tuple[float, ...]
    """Of those who have one, after late penalties; in ascending order."""

    tasks: tuple[TaskReport, ...]
    ungraded: tuple[Score, ...]
    """What needs a human."""

    late: tuple[Score, ...]
    missing: tuple[str, ...]
    """Students who are known and submitted nothing."""

    histogram: tuple[tuple[str, int], ...]
    """Ranges of points, and how many students have so many."""

    @property
    def submitted(self) -> int:
        return len(self.scores) + len(self.ungraded)

    @property
    def mean(self) -> float | None:
        return sum(self.scores) / len(self.scores) if self.scores else None

    @property
    def median(self) -> float | None:
        if not self.scores:
            return None
        middle = len(self.scores) // 2
        return (self.scores[middle] + self.scores[~middle]) / 2


def class_report(
    assignment: str, scores: Sequence[Score], markings: Iterable[Marked]
) -> ClassReport:
    """Sum up an assignment.

    Args:
        assignment: its name.
        scores: of the assignment, for all students.
        markings: of the assignment; each is looked at once, and not kept.
    """
    wrong: dict[str, _WrongAnswers] = defaultdict(_WrongAnswers)
    spent: dict[str, dict[str, Spent]] = defaultdict(dict)
    unanswered: dict[str, set[str]] = defaultdict(set)
    submitted = {score.student for score in scores if not score.is_missing}
    for marked in markings:
        if marked.student not in submitted:
            continue
        for verdict in marked.verdicts:
            if verdict.spent:
                spent[verdict.task][marked.student] = verdict.spent
            if verdict.grade is Grade.UNANSWERED:
                unanswered[verdict.task].add(marked.student)
            elif verdict.grade in (Grade.FAILED, Grade.PARTLY):
                wrong[verdict.task].add(marked, verdict)
    graded = [score for score in scores if score.status is ScoreStatus.GRADED]
    totals = sorted(score.score or 0.0 for score in graded)
    max_score = scores[0].max_score if scores else 0.0
    core = _core_tasks(assignment)
    return ClassReport(
        assignment=assignment,
        max_score=max_score,
        scores=tuple(totals),
        tasks=tuple(
            replace(
                _task_report(
                    task.task, task.max_score, scores, unanswered[task.task], wrong[task.task]
                ),
                board=board(task.task, spent[task.task]) if spent[task.task] else None,
                is_core=task.task in core,
            )
            for task in (scores[0].tasks if scores else ())
        ),
        ungraded=tuple(score for score in scores if score.status is ScoreStatus.UNGRADED),
        late=tuple(score for score in scores if score.seconds_late > 0),
        missing=tuple(score.student for score in scores if score.is_missing),
        histogram=tuple(_histogram(totals, max_score)),
    )


def _core_tasks(assignment: str) -> tuple[str, ...]:
    try:
        return find_exercise(assignment).core
    except UnknownExerciseError:  # an assignment of the teacher's without judged tasks
        return ()


class _WrongAnswers:
    """The wrong answers to a task, by the feedback they got."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, Message] = {}

    def add(self, marked: Marked, verdict: Verdict) -> None:
        # The same mistake on other numbers is the same; where in an answer it is says nothing.
        kind = re.sub(r"[-+]?\d[\d.,e]*", "#", verdict.message.partition("\n    in the line")[0])
        self._counts[kind] += 1
        if kind not in self._examples:
            answer = _answer(marked, verdict.task)
            self._examples[kind] = Message(verdict.message, 0, marked.student, answer)

    def messages(self) -> tuple[list[Message], int]:
        """Return the most frequent feedback, and the number of answers with other feedback."""
        common = self._counts.most_common(MOST_MESSAGES)
        messages = [replace(self._examples[kind], count=count) for kind, count in common]
        return messages, self._counts.total() - sum(count for _, count in common)


def _answer(marked: Marked, task: str) -> str:
    """Return what stands in the cell for the answer, cut if it is long."""
    cells = marked.notebook["cells"] if marked.notebook else []
    for cell in cells:
        if grade_id(cell) == task:
            lines = str(cell["source"]).splitlines()
            more = ["..."] if len(lines) > _EXAMPLE_LINES else []
            return "\n".join([*lines[:_EXAMPLE_LINES], *more])
    return ""


def _task_report(
    task: str,
    max_score: float,
    scores: Sequence[Score],
    unanswered: set[str],
    wrong: _WrongAnswers,
) -> TaskReport:
    outcomes: Counter[str] = Counter()
    for score in scores:
        if not score.is_missing:
            points = next(each.score for each in score.tasks if each.task == task)
            outcomes[_outcome(points, max_score, score.student in unanswered)] += 1
    ordered = {name: outcomes[name] for name in OUTCOMES if outcomes[name]}
    messages, others = wrong.messages()
    return TaskReport(task, max_score, ordered, tuple(messages), others)


def _outcome(points: float | None, max_score: float, is_unanswered: bool) -> str:
    if points is None:
        return UNGRADED
    if points >= max_score:
        return ALL
    if points > 0:
        return SOME
    return UNANSWERED if is_unanswered else NONE


def _histogram(totals: Sequence[float], max_score: float) -> Iterator[tuple[str, int]]:
    """Count scores in up to ten ranges of whole points; the last has the maximum and more."""
    width = max(1, -(-int(max_score) // 10))
    top = int(max_score) // width * width
    for start in range(0, top + 1, width):
        is_last = start == top
        count = sum(start <= total and (is_last or total < start + width) for total in totals)
        end = number(max_score) if is_last else f"under {start + width}"
        alone = is_last and start == max_score
        yield (f"{start}" if width == 1 or alone else f"{start} to {end}"), count


def report_lines(report: ClassReport, *, names: bool = False) -> list[str]:
    """Write a report as text.

    Args:
        report: of a class.
        names: whether boards say who has which place.
    """
    lines = [report.assignment, "=" * len(report.assignment), "", *_overview(report), ""]
    if report.scores:
        lines += ["points", *_bars(report.histogram), ""]
    for task in report.tasks:
        lines += [*_task_lines(task), ""]
        if task.board:
            lines += ["board", *board_lines(task.board, names=names), ""]
    if report.ungraded:
        lines.append(f"needs a human ({len(report.ungraded)})")
        lines += [f"  {score.student}: {score.reason}" for score in report.ungraded]
        lines.append("")
    if report.late:
        lines.append(f"late ({len(report.late)})")
        lines += [f"  {score.student}: {late_in_words(score)}" for score in report.late]
        lines.append("")
    if report.missing:
        lines += [f"not submitted ({len(report.missing)})", f"  {', '.join(report.missing)}", ""]
    return lines[:-1]


def overview(report: ClassReport) -> list[tuple[str, str]]:
    """Return the numbers that a report begins with."""
    known = report.submitted + len(report.missing)
    facts = [
        ("submitted", f"{report.submitted} of {known}"),
        ("graded", f"{len(report.scores)}"),
        ("need a human", f"{len(report.ungraded)}"),
        ("late", f"{len(report.late)}"),
    ]
    if report.mean is not None and report.median is not None:
        most = number(report.max_score)
        facts.append(("mean", f"{report.mean:.1f} of {most}"))
        facts.append(("median", f"{number(report.median)} of {most}"))
        facts.append(("range", f"{number(report.scores[0])} to {number(report.scores[-1])}"))
    return facts


def late_in_words(score: Score) -> str:
    """Describe how late something is, and what that cost."""
    hours = score.seconds_late / _SECONDS_PER_HOUR
    return f"{hours:.1f} hours late, {number(score.late_penalty)} points off"


def _overview(report: ClassReport) -> Iterator[str]:
    yield from (f"{name:<14}{value}" for name, value in overview(report))


def _task_lines(task: TaskReport) -> Iterator[str]:
    success = "no scores yet" if task.success is None else f"{task.success:.0%} solved it"
    yield f"{task.title} ({number(task.max_score)} points): {success}"
    yield from _bars(tuple(task.outcomes.items()))
    for message in task.messages:
        first, *rest = message.text.splitlines() or ["(no message)"]
        yield f"  {message.count} x {first}"
        yield from (f"      {line.strip()}" for line in rest)
        yield f"      for example {message.student}"
    if task.other_messages:
        yield f"  {task.other_messages} x something else"


def _bars(counts: Sequence[tuple[str, int]]) -> Iterator[str]:
    most = max((count for _, count in counts), default=0)
    width = max((len(name) for name, _ in counts), default=0)
    for name, count in counts:
        bar = "#" * (round(_BAR_CHARACTERS * count / most) if most else 0)
        yield f"  {name:<{width}}  {count:>4}  {bar}".rstrip()
