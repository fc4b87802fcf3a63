"""The board of a workshop: fewest bytes, fewest steps, and no names unless asked for."""

from __future__ import annotations

from vramlab_classroom.judge.verdict import CaseResult, Grade, Spent, Verdict
from vramlab_classroom.nbgrader.scores import Score, TaskScore
from vramlab_classroom.reports.class_report import ClassReport, class_report, report_lines
from vramlab_classroom.run.graded_submission import Marked

LEAN, QUICK = Spent(1000, 50), Spent(4000, 7)


def _verdict(grade: Grade, *cases: tuple[bool, Spent | None]) -> Verdict:
    results = tuple(
        CaseResult({"tokens": number}, True, "runs", "peak", visible, spent)
        for number, (visible, spent) in enumerate(cases)
    )
    return Verdict("loss", 6, grade, "", results)


def _report() -> ClassReport:
    verdicts = {
        # two visible cases count, 600 + 400 B and 20 + 30 steps; the hidden one does not
        "ada": _verdict(
            Grade.PASSED,
            (True, Spent(600, 20)),
            (True, Spent(400, 30)),
            (False, Spent(1, 1)),
        ),
        "bob": _verdict(Grade.PASSED, (True, QUICK)),
        "<cem>": _verdict(Grade.PASSED, (True, QUICK)),
        # what failed in a later case is on no board
        "dee": _verdict(Grade.FAILED, (True, Spent(1, 1))),
    }
    scores = [
        Score(name, "workshop_f", (TaskScore("loss", float(each.score or 0), 6),))
        for name, each in verdicts.items()
    ]
    marked = [Marked(name, "workshop_f", "abc", (each,)) for name, each in verdicts.items()]
    return class_report("workshop_f", scores, marked)


def test_both_lists_have_those_who_solved_it() -> None:
    found = _report().tasks[0].board
    assert found is not None
    assert [place.spent for place in found.fewest_bytes] == [LEAN, QUICK]
    assert [place.spent for place in found.fewest_steps] == [QUICK, LEAN]
    assert found.fewest_steps[0].students == ("<cem>", "bob")


def test_nobody_is_named_unless_it_is_asked_for() -> None:
    board_of = slice(-9, None)
    lines = report_lines(_report())
    assert lines[lines.index("board") :] == [
        "board",
        "  fewest bytes",
        "     1  1,000 bytes, 50 steps  1 student",
        "     2  4,000 bytes, 7 steps   2 students",
        "  fewest steps",
        "     1  4,000 bytes, 7 steps   2 students",
        "     2  1,000 bytes, 50 steps  1 student",
    ]
    named = report_lines(_report(), names=True)[board_of]
    assert "     1  4,000 bytes, 7 steps   <cem>, bob" in named


def test_a_verdict_keeps_its_score_as_data_and_tells_it() -> None:
    verdict = _verdict(Grade.PASSED, (True, LEAN))
    assert Verdict.from_data(verdict.as_data()) == verdict
    assert "Beyond full marks: 1,000 bytes, 50 steps, the fewer the better." in str(verdict)
