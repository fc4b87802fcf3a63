"""What a class did with an assignment: counted, grouped, and safe to look at."""

from __future__ import annotations

from datetime import datetime
from html.parser import HTMLParser

from vramlab_classroom.judge.verdict import Grade, Verdict
from vramlab_classroom.nbgrader.scores import Score, TaskScore
from vramlab_classroom.reports.class_page import class_page
from vramlab_classroom.reports.class_report import ClassReport, class_report
from vramlab_classroom.run.graded_submission import Marked

ATTACK = "<script>alert('learner')</script>"


def _score(student: str, *points: float | None, hours_late: float = 0, reason: str = "") -> Score:
    tasks = tuple(
        TaskScore(task, score, most, reason if score is None else "")
        for task, score, most in zip(("block", "fix"), points, (2, 4), strict=True)
    )
    return Score(
        student=student,
        assignment="02",
        tasks=tasks,
        submitted=datetime(2026, 3, 1),
        seconds_late=hours_late * 3600,
        late_penalty=1 if hours_late else 0,
    )


def _marked(student: str, *verdicts: Verdict, answer: str = "") -> Marked:
    cell = {
        "cell_type": "code",
        "source": answer,
        "metadata": {"nbgrader": {"grade_id": "block"}},
    }
    return Marked(student, "02", "abc", verdicts, notebook={"cells": [cell]})


def _failed(message: str, task: str = "block") -> Verdict:
    return Verdict(task, 2, Grade.FAILED, message)


def _report() -> ClassReport:
    scores = [
        _score("ada", 2, 4),
        _score("bob", 0, 4, hours_late=30),
        _score("cem", 0, 0),
        _score("dee", 0, 0),
        _score("eve", 2, None, reason="its process ended with SIGKILL"),
        _score("fay", 2, 1),
        Score("gus", "02", _score("", None, None).tasks, is_missing=True),
    ]
    markings = [
        _marked("ada"),
        _marked(
            "bob", _failed("3 of 13 cases are wrong; the first is off by +512."), answer="f = 1"
        ),
        _marked(
            "cem", _failed("5 of 13 cases are wrong; the first is off by -24."), answer="f = 2"
        ),
        _marked(
            "dee", Verdict("block", 2, Grade.UNANSWERED, ""), _failed("It used too much.", "fix")
        ),
        _marked("eve", _failed(f"NameError: {ATTACK}\n    in the line: x"), answer=ATTACK),
        _marked("a student who withdrew", _failed("3 of 13 cases are wrong")),
    ]
    return class_report("02", scores, markings)


def test_scores_are_summed_up() -> None:
    report = _report()
    # ada 6, bob 4 - 1, cem 0, dee 0, fay 3; eve has none, gus submitted nothing.
    assert report.scores == (0, 0, 3, 3, 6)
    assert report.mean == 12 / 5
    assert report.median == 3
    assert report.submitted == 6
    assert [score.student for score in report.ungraded] == ["eve"]
    assert [score.student for score in report.late] == ["bob"]
    assert report.missing == ("gus",)
    assert report.histogram == (
        ("0", 2),
        ("1", 0),
        ("2", 0),
        ("3", 2),
        ("4", 0),
        ("5", 0),
        ("6", 1),
    )


def test_each_task_has_its_outcomes_and_success() -> None:
    block, fix = _report().tasks
    assert block.outcomes == {"all points": 3, "no points": 2, "not answered": 1}
    assert block.success == 3 / 6
    assert fix.outcomes == {
        "all points": 2,
        "some points": 1,
        "no points": 2,
        "could not be graded": 1,
    }
    assert fix.success == 2 / 5  # who could not be graded has not failed


def test_wrong_answers_are_grouped_by_what_they_were_told_whatever_the_numbers() -> None:
    first, second = _report().tasks[0].messages
    assert first.text == "3 of 13 cases are wrong; the first is off by +512."
    assert (first.count, first.student, first.answer) == (2, "bob", "f = 1")
    assert second.count == 1
    assert _report().tasks[0].other_messages == 0


class _Page(HTMLParser):
    """Collects what a test wants to know of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes


def test_the_page_runs_and_fetches_nothing() -> None:
    page = class_page(_report())
    parsed = _Page(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(parsed.tags)
    assert not {"src", "href", "onclick"} & {name for name, _ in parsed.attributes}
    assert "&lt;script&gt;alert(" in page


def test_the_page_can_be_read_without_seeing_it() -> None:
    parsed = _Page(class_page(_report()))
    assert ("lang", "en") in parsed.attributes
    assert parsed.tags.count("h1") == 1
    assert parsed.tags.count("caption") >= 4
    # Bars are for the eye; the numbers beside them are text.
    bars = parsed.attributes.count(("class", "bar"))
    assert bars == parsed.attributes.count(("aria-hidden", "true"))
    assert bars == 7 + 3 + 4
