"""What is read from a gradebook: scores, and why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import postgresql_server
import pytest
from nbgrader.api import Gradebook
from small_gradebook import DUE, EXERCISE, add_assignment, add_submission, make_gradebook

from vramlab_classroom.nbgrader.scores import (
    NO_REASON,
    Score,
    ScoreStatus,
    TaskScore,
    find_assignment,
    read_scores,
)


@pytest.fixture
def gradebook(tmp_path: Path) -> Iterator[Gradebook]:
    with make_gradebook(tmp_path) as gradebook:
        yield gradebook


def test_a_graded_submission(gradebook: Gradebook) -> None:
    add_submission(
        gradebook,
        "ada",
        {"block_bytes": 2, "segment_bytes": 1.5},
        hours_late=30,
        penalty=0.5,
        first_name="Ada",
        last_name="Lovelace",
        email="ada@example.org",
        lms_user_id="4711",
    )
    (score,) = read_scores(gradebook)
    assert score == Score(
        student="ada",
        assignment=EXERCISE,
        tasks=(TaskScore("block_bytes", 2, 2), TaskScore("segment_bytes", 1.5, 3)),
        submitted=DUE + timedelta(hours=30),
        seconds_late=30 * 3600,
        late_penalty=0.5,
        first_name="Ada",
        last_name="Lovelace",
        email="ada@example.org",
        lms_id="4711",
    )
    assert score.status is ScoreStatus.GRADED
    assert score.score == 2 + 1.5 - 0.5
    assert score.max_score == 2 + 3
    assert score.reason == ""


def test_what_could_not_be_graded_has_no_score_and_says_why(gradebook: Gradebook) -> None:
    add_submission(
        gradebook,
        "bob",
        {"block_bytes": 2, "segment_bytes": None},
        # As grading writes it: the whole verdict.
        reasons={
            "segment_bytes": "segment_bytes: could not be graded\nits process ended with SIGKILL"
        },
    )
    (score,) = read_scores(gradebook)
    assert score.status is ScoreStatus.UNGRADED
    assert score.score is None
    assert score.tasks[1].score is None
    assert score.reason == "segment_bytes: its process ended with SIGKILL"


def test_a_submission_that_could_not_be_read_says_so_once(gradebook: Gradebook) -> None:
    scores = dict.fromkeys(("block_bytes", "segment_bytes"))
    add_submission(gradebook, "bob", scores, reasons=dict.fromkeys(scores, "it is not JSON"))
    add_submission(gradebook, "eve", scores)
    bob, eve = read_scores(gradebook)
    assert bob.reason == "it is not JSON"
    assert eve.reason == NO_REASON


def test_who_submitted_nothing_has_no_score(gradebook: Gradebook) -> None:
    gradebook.add_student("eve")
    (score,) = read_scores(gradebook)
    assert score.status is ScoreStatus.MISSING
    assert score.score is None
    assert score.reason == "not submitted"


def test_a_score_given_by_hand_goes_first_and_extra_credit_is_added(gradebook: Gradebook) -> None:
    add_submission(gradebook, "bob", {"block_bytes": None, "segment_bytes": 0})
    by_hand, credited = (
        gradebook.find_grade(f"{task}-test", EXERCISE, EXERCISE, "bob")
        for task in ("block_bytes", "segment_bytes")
    )
    by_hand.manual_score = 1.5
    credited.extra_credit = 0.25
    gradebook.db.commit()
    (score,) = read_scores(gradebook)
    assert score.score == 1.5 + 0.25
    assert score.score == gradebook.find_submission(EXERCISE, "bob").score


@pytest.mark.skipif(postgresql_server.programs() is None, reason="PostgreSQL is not installed")
def test_postgresql_gives_the_same(gradebook: Gradebook) -> None:
    def fill(gradebook: Gradebook) -> list[Score]:
        add_submission(gradebook, "ada", {"block_bytes": 2, "segment_bytes": 3}, penalty=0.5)
        add_submission(
            gradebook,
            "Zoë",
            {"block_bytes": None, "segment_bytes": 1},
            hours_late=2,
            reasons={"block_bytes": "because"},
        )
        gradebook.add_student("zoe")
        assert find_assignment(gradebook, "2") == EXERCISE
        return sorted(read_scores(gradebook, [EXERCISE]), key=lambda score: score.student)

    with postgresql_server.server() as server, Gradebook(server.url) as in_postgresql:
        add_assignment(in_postgresql, EXERCISE)
        assert fill(in_postgresql) == fill(gradebook)
