"""What being late costs: nbgrader's late submission plugin for this course.

nbgrader knows a deadline when the assignment's due date is set in the formgrader, and a
submission's time from its `timestamp.txt`; without either, no submission is late. An extension
given to a student moves the deadline. Settings: `LatePenalty` in autograder/nbgrader_config.py.
"""

from __future__ import annotations

import math

from nbgrader.plugins import LateSubmissionPlugin
from traitlets import Float

SECONDS_PER_DAY = 24 * 60 * 60


class LatePenalty(LateSubmissionPlugin):  # type: ignore[misc]
    """Takes a share of the points earned for each day begun; nothing, unless it is configured.

    The penalty is worked out when a submission is graded. If points are given by hand afterwards,
    grade it again.
    """

    percent_per_day = Float(
        0.0, min=0.0, max=100.0, help="Percent of the points earned that each day begun costs."
    ).tag(config=True)

    grace_minutes = Float(
        0.0, min=0.0, help="This late is not late. Who is later is late from the deadline on."
    ).tag(config=True)

    zero_after_days = Float(
        math.inf, min=0.0, help="Later than this many days, no points are left."
    ).tag(config=True)

    def late_submission_penalty(
        self, student_id: str, score: float, total_seconds_late: float
    ) -> float | None:
        """Return the points to take off; None for no penalty.

        Args:
            student_id: not looked at.
            score: points earned.
            total_seconds_late: since the deadline, any extension included.
        """
        if total_seconds_late <= self.grace_minutes * 60:
            return None
        days = total_seconds_late / SECONDS_PER_DAY
        if days > self.zero_after_days:
            return score
        share = min(1.0, math.ceil(days) * self.percent_per_day / 100)
        return score * share or None
