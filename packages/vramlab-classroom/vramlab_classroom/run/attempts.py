"""Several attempts: of each task the best counts, and later ones cost some of what they earn.

Off by default: then the latest submission counts, and nothing else. An attempt is
a notebook that was graded; which ones there were is in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traitlets import Float, Int
from traitlets.config import Configurable

from vramlab_classroom.judge.verdict import Grade, Verdict
from vramlab_classroom.run.graded_submission import Marked


class Attempts(Configurable):
    """How attempts count: settings for autograder/nbgrader_config.py."""

    percent = Float(
        None,
        min=0.0,
        max=100.0,
        allow_none=True,
        help="Percent of a task's points that each attempt at it costs after the first. None: "
        "only the last submission counts.",
    ).tag(config=True)

    most = Int(
        None, min=1, allow_none=True, help="Attempts at a task that count; None for all."
    ).tag(config=True)

    @property
    def are_counted(self) -> bool:
        """Whether earlier submissions count at all."""
        return self.percent is not None

    def best_of(self, marked: Marked, attempts: Sequence[Marked]) -> Marked:
        """Return a marked submission with the best verdict of all attempts on each task.

        Args:
            marked: the latest submission.
            attempts: all that were graded, it included, in order.
        """
        read = [each for each in attempts if not each.problem]
        histories = (
            [found for each in read if (found := each.verdict(verdict.task)) is not None]
            for verdict in marked.verdicts
        )
        return replace(marked, verdicts=tuple(map(self._best, histories)))

    def _best(self, history: Sequence[Verdict]) -> Verdict:
        """Choose among the verdicts on one task; who did not answer it has made no attempt."""
        tried = [each for each in history if each.grade is not Grade.UNANSWERED]
        if not tried:
            return history[-1]
        counted = [self._counted(each, number) for number, each in enumerate(tried, 1)]
        best = max(counted, key=lambda verdict: verdict.score or 0)
        last = counted[-1]
        is_open = last.score is None and (best.score or 0) < best.points
        if best is last or is_open or not best.score:
            return last
        which = f"Attempt {counted.index(best) + 1} of {len(counted)} counts."
        return replace(best, note=f"{best.note} {which}".strip())

    def _counted(self, verdict: Verdict, number: int) -> Verdict:
        """Take off what an attempt costs."""
        if number == 1 or not verdict.score:
            return verdict
        if self.most is not None and number > self.most:
            cost, reason = 100.0, f"Attempt {number}, where {self.most} count."
        else:
            cost = min(100.0, (self.percent or 0) * (number - 1))
            reason = f"Attempt {number}: {cost:g} % of the points are taken off."
        earned = round(verdict.score * (1 - cost / 100), 4)
        return replace(verdict, earned=earned, note=f"{verdict.note} {reason}".strip())
