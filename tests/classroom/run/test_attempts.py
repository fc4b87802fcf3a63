"""Of several attempts the best counts, task by task, less what a later one costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from vramlab_classroom.judge.verdict import Grade, Verdict
from vramlab_classroom.run.attempts import Attempts
from vramlab_classroom.run.graded_submission import Marked
from vramlab_classroom.run.journal import Journal, read_markings

PASSED = Verdict("f", 4, Grade.PASSED, "")
PARTLY = Verdict("f", 4, Grade.PARTLY, "Almost.", earned=3.0)
FAILED = Verdict("f", 4, Grade.FAILED, "No.")
UNANSWERED = Verdict("f", 4, Grade.UNANSWERED, "")
UNGRADED = Verdict("f", 4, Grade.UNGRADED, "Its process ended.")


def marked(verdict: Verdict, notebook: str = "") -> Marked:
    return Marked("ada", "02", notebook or f"{id(verdict)}", (verdict,))


def best(*verdicts: Verdict, percent: float = 10, most: int | None = None) -> Verdict:
    attempts = [marked(verdict) for verdict in verdicts]
    settings = Attempts(percent=percent, most=most)
    (found,) = settings.best_of(attempts[-1], attempts).verdicts
    return found


@pytest.mark.parametrize(
    ("verdicts", "score", "note"),
    [
        ([PASSED], 4, ""),
        ([FAILED, PASSED], 3.6, "Attempt 2: 10 % of the points are taken off."),
        ([FAILED, FAILED, PASSED], 3.2, "Attempt 3: 20 % of the points are taken off."),
        ([UNANSWERED, PASSED], 4, ""),  # no attempt at it
        ([PASSED, FAILED], 4, "Attempt 1 of 2 counts."),
        ([PASSED, PASSED], 4, "Attempt 1 of 2 counts."),
        ([PARTLY, PASSED], 3.6, "Attempt 2: 10 % of the points are taken off."),
        ([PARTLY, PARTLY], 3, "Attempt 1 of 2 counts."),  # 3 and 2.7
        ([FAILED, UNANSWERED], 0, ""),
        ([UNANSWERED], 0, ""),
        ([PARTLY, UNGRADED], None, ""),  # it may be worth more: a human decides
        ([PASSED, UNGRADED], 4, "Attempt 1 of 2 counts."),
        ([UNGRADED, PASSED], 3.6, "Attempt 2: 10 % of the points are taken off."),
    ],
)
def test_the_best_attempt_counts(verdicts: list[Verdict], score: float | None, note: str) -> None:
    found = best(*verdicts)
    assert (found.score, found.note) == (score, note)


def test_there_may_be_a_last_attempt() -> None:
    found = best(FAILED, FAILED, PASSED, most=2)
    assert (found.score, found.note) == (0, "Attempt 3, where 2 count.")


def test_what_could_not_be_read_is_no_attempt() -> None:
    broken = Marked("ada", "02", "ab", problem="It is not a notebook.")
    last = marked(PASSED)
    (found,) = Attempts(percent=10).best_of(last, [broken, last]).verdicts
    assert found == PASSED


def test_the_journal_keeps_each_notebook_in_full_where_attempts_count(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal(path) as journal:
        for notebook, verdict in (("1", FAILED), ("2", PARTLY), ("1", PASSED)):
            journal.record(marked(verdict, notebook), "by", keeps_others=True)
        # In the order of the notebooks, of each the last marking.
        assert journal.attempts("ada", "02") == [marked(PASSED, "1"), marked(PARTLY, "2")]
        assert list(read_markings(path, "02")) == [marked(PASSED, "1")]
        journal.record(marked(FAILED, "3"), "by")
        assert journal.attempts("ada", "02") == [marked(FAILED, "3")]
