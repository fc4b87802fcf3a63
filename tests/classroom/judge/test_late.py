"""What being late costs, by itself and through nbgrader's own step."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from classroom import ROOT
from nbformat.v4 import new_notebook
from nbgrader.api import Gradebook
from nbgrader.preprocessors import AssignLatePenalties
from traitlets.config import Config

from vramlab_classroom.nbgrader.late_penalty import LatePenalty
from vramlab_classroom.nbgrader.release import course_config

HOUR = 60 * 60
DAY = 24 * HOUR
DUE = datetime(2026, 3, 1, 12)


def _penalty(seconds: float, score: float = 20, **settings: float) -> float | None:
    return LatePenalty(**settings).late_submission_penalty("ada", score, seconds)


def test_lateness_costs_nothing_by_default() -> None:
    assert _penalty(30 * DAY) is None


@pytest.mark.parametrize(
    ("seconds", "points"),
    [
        (1, 2),  # the first day has begun: 10 % of 20
        (DAY, 2),
        (DAY + 1, 4),
        (3 * DAY + HOUR, 8),
        (9 * DAY + HOUR, 20),
        (30 * DAY, 20),  # never more than there is
    ],
)
def test_each_day_begun_costs_a_share_of_the_points_earned(seconds: float, points: float) -> None:
    assert _penalty(seconds, percent_per_day=10) == pytest.approx(points, abs=1e-12)


def test_within_the_grace_nobody_is_late_and_after_it_from_the_deadline_on() -> None:
    settings = {"percent_per_day": 10.0, "grace_minutes": 60.0}
    assert _penalty(HOUR, **settings) is None
    assert _penalty(HOUR + 1, **settings) == 2
    assert _penalty(DAY + 1, **settings) == 4


def test_later_than_the_last_day_nothing_is_left() -> None:
    settings = {"percent_per_day": 10.0, "zero_after_days": 2.0}
    assert _penalty(2 * DAY, **settings) == 4
    assert _penalty(2 * DAY + 1, **settings) == 20
    assert _penalty(DAY, zero_after_days=2.0) is None


# nbgrader 0.9.6 makes SQLAlchemy warn about its own session whenever a submission is new.
@pytest.mark.filterwarnings("ignore:Object of type <Submitted")
def test_nbgrader_takes_the_settings_of_the_course(tmp_path: Path) -> None:
    config: Config = course_config(ROOT)
    config.LatePenalty.percent_per_day = 10
    url = f"sqlite:///{tmp_path / 'gradebook.db'}"
    late = {"early": (-1, 0), "late": (30, 0), "excused": (30, 24)}  # hours, hours of extension
    with Gradebook(url) as gradebook:
        gradebook.add_assignment("02", duedate=DUE)
        gradebook.add_notebook("02", "02")
        gradebook.add_grade_cell("f-test", "02", "02", max_score=5, cell_type="code")
        for student, (hours, extension) in late.items():
            gradebook.add_student(student)
            submission = gradebook.add_submission(
                "02", student, timestamp=DUE + timedelta(hours=hours)
            )
            submission.extension = timedelta(hours=extension)
            gradebook.find_grade("f-test", "02", "02", student).auto_score = 5
        gradebook.db.commit()
    step = AssignLatePenalties(config=config)
    step.log.setLevel("ERROR")
    for student in late:
        details = {"notebook": "02", "assignment": "02", "student": student, "db_url": url}
        step.preprocess(new_notebook(), {"nbgrader": details})
    with Gradebook(url) as gradebook:
        penalties = {
            student: gradebook.find_submission("02", student).late_submission_penalty
            for student in late
        }
    # 30 hours are two days begun, 10 % of 5 points each; with an extension of 24 hours, one.
    assert penalties == {"early": 0, "late": 1, "excused": 0.5}
