"""The judge: compares answers with measured truths, and names the likely mistake."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vramlab_classroom.judge.job_pool import JobDied, JobLate, JobPool
from vramlab_classroom.judge.judge import Judge
from vramlab_classroom.judge.task import Exercise
from vramlab_classroom.judge.verdict import Grade, Verdict


@pytest.fixture
def judge(pool: JobPool, toy: Exercise):
    def judge(task: str, *cells: str, seed: str | None = None) -> Verdict:
        return Judge(pool, seed).judge(toy, task, cells)

    return judge


def test_right_answers_earn_all_points(judge) -> None:
    verdict = judge("double", "def double(size):\n    return 2 * size")
    assert (verdict.grade, verdict.score, verdict.message) == (Grade.PASSED, 2, "")
    assert [(case.answered, case.truth, case.visible) for case in verdict.cases] == [
        ("2", "2", True),
        ("4", "4", True),
    ]


def test_hidden_cases_decide_when_there_is_a_seed(judge) -> None:
    learned_by_heart = "def double(size):\n    return {1: 2, 2: 4}.get(size, 0)"
    assert judge("double", learned_by_heart).grade is Grade.PASSED
    verdict = judge("double", learned_by_heart, seed="s")
    assert (verdict.grade, verdict.score) == (Grade.FAILED, 0)
    assert [case.visible for case in verdict.cases] == [True, True, False, False, False]
    assert [case.right for case in verdict.cases] == [True, True, False, False, False]


def test_a_seed_always_gives_the_same_cases_and_another_seed_others(judge) -> None:
    source = "def double(size):\n    return 2 * size"
    cases = [judge("double", source, seed=seed).cases for seed in ("s", "s", "t")]
    assert cases[0] == cases[1]
    assert cases[0] != cases[2]


def test_a_known_mistake_is_named(judge) -> None:
    verdict = judge("double", "def double(size):\n    return size", seed="s")
    assert verdict.message == "You answered the size itself."


def test_a_mistake_is_named_if_it_explains_the_right_cases_too(judge) -> None:
    """2 is answered by 2, as "the size itself" would; 1 by 2, which is right, and it would not."""
    verdict = judge("double", "def double(size):\n    return 2")
    assert verdict.message == "1 of 2 cases are wrong; the first is off by -2."


def test_of_two_mistakes_the_one_that_explains_all_is_named(judge) -> None:
    # 1 -> 1 is explained by both "the size itself" and "the square"; 2 -> 4 only by the square.
    verdict = judge("double", "def double(size):\n    return size * size")
    assert verdict.message == "You answered the square."


def test_an_unknown_mistake_is_told_in_bytes(judge) -> None:
    verdict = judge("double", "def double(size):\n    return 2 * size + 2**20 * (size > 1)")
    assert verdict.message == (
        "1 of 2 cases are wrong; the first is off by +1048576 (+1.0000 MiB)."
    )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("2.5 * size", "double gave the float 2.5, but bytes are counted in whole numbers"),
        ("None", "double gave None. Does every path through it end in a return?"),
        ("'2'", "double gave '2' (str); it should be an int."),
        ("size == 1", "double gave True (bool); it should be an int."),
    ],
)
def test_a_wrong_type_is_explained(judge, answer: str, message: str) -> None:
    verdict = judge("double", f"def double(size):\n    return {answer}")
    assert verdict.score == 0
    assert verdict.message.startswith(message)


def test_an_object_that_equals_everything_earns_nothing(judge) -> None:
    source = (
        "class Any(int):\n    def __eq__(self, other):\n        return True\n"
        "def double(size):\n    return Any(0)"
    )
    assert judge("double", source).message == "double gave 0 (Any); it should be an int."


@pytest.mark.parametrize(
    "source", ["", "def double(size):\n    raise NotImplementedError", "raise NotImplementedError"]
)
def test_no_answer_is_not_a_mistake(judge, source: str) -> None:
    verdict = judge("double", source)
    assert (verdict.grade, verdict.score) == (Grade.UNANSWERED, 0)


def test_evidence_is_passed_to_a_diagnosis(judge) -> None:
    assert judge("total", "def total(sizes):\n    return sum(sizes)").score == 1
    verdict = judge("total", "def total(sizes):\n    return min(sizes)")
    assert (verdict.score, verdict.message) == (0, "You counted the first only.")
    # The numbers that it was made from (first=1, second=2) would give the answer away.
    assert [case.name for case in verdict.cases] == ["1: sizes=[1, 2]"]


def test_a_value_can_be_the_answer(judge) -> None:
    assert judge("cause", "cause = 'rounding'").score == 1
    assert judge("cause", "cause = 'leak'").message == "Nothing was lost."
    assert judge("cause", "cause = 'weather'").message == "That is not what happened."
    assert judge("cause", "cause = lambda: 'rounding'").score == 0


def test_a_repair_is_tried_on_every_case(judge) -> None:
    verdict = judge("shrink", "def shrink(rows):\n    return rows[::2]", seed="s")
    assert verdict.score == 3
    assert [case.truth for case in verdict.cases] == ["5 of 10 are left", "6 of 12 are left"]


def test_an_answer_that_leaves_some_cases_open_is_wrong_in_these(judge) -> None:
    source = "def double(size):\n    if size == 1:\n        return 2\n    raise NotImplementedError"
    verdict = judge("double", source)
    assert [case.right for case in verdict.cases] == [True, False]
    assert (verdict.grade, verdict.score) == (Grade.PARTLY, 1)  # one of two cases
    assert verdict.message == "NotImplementedError: not all cases are answered yet."


def test_a_repair_that_fails_is_told_why(judge) -> None:
    verdict = judge("shrink", "def shrink(rows):\n    return rows")
    assert (verdict.score, verdict.message) == (0, "10 of 10 are left")


def test_a_repair_that_fails_a_hidden_case_is_told_which(judge) -> None:
    verdict = judge("shrink", "def shrink(rows):\n    return rows[:5] * (len(rows) // 5)", seed="s")
    assert verdict.message == "10 of 10 are left"
    verdict = judge("shrink", "def shrink(rows):\n    return rows[5:]", seed="s")
    assert verdict.message == "7 of 12 are left (tried with size=12)"


def test_a_repair_that_fails_one_of_several_cases_is_shown_which(
    pool: JobPool, toy: Exercise
) -> None:
    tasks = (replace(toy.task("shrink"), visible=({"size": 10}, {"size": 12})),)
    source = "def shrink(rows):\n    return rows[5:]"
    verdict = Judge(pool).judge(replace(toy, tasks=tasks), "shrink", [source])
    assert verdict.message == "7 of 12 are left"
    assert [(case.name, case.answered, case.right) for case in verdict.cases] == [
        ("size=10", "runs", True),
        ("size=12", "fails", False),
    ]


def test_an_error_in_a_repair_is_the_learners(judge) -> None:
    verdict = judge("shrink", "def shrink(rows):\n    return rows.nope")
    assert verdict.grade is Grade.FAILED
    assert verdict.message.startswith("AttributeError: 'list' object has no attribute 'nope'")


def test_what_cannot_be_graded_has_no_score(judge) -> None:
    """A fault of the task is none of the answer's."""
    verdict = judge("broken_raise", "def broken_raise(x):\n    return 1")
    assert (verdict.grade, verdict.score) == (Grade.UNGRADED, None)
    assert verdict.message


def test_a_program_that_ends_its_process_earns_nothing(judge) -> None:
    verdict = judge("broken_die", "def broken_die(x):\n    return 1")
    assert (verdict.grade, verdict.score) == (Grade.FAILED, 0)
    assert verdict.message == "No answer: its process ended with SIGABRT."


def test_an_error_that_no_except_takes_is_the_learners(judge) -> None:
    source = "class Odd(BaseException):\n    pass\ndef shrink(rows):\n    raise Odd('no')"
    verdict = judge("shrink", source)
    assert (verdict.grade, verdict.message.splitlines()[0]) == (Grade.FAILED, 'Odd: "no"')


def test_an_answer_without_end_earns_nothing(judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramlab_classroom.judge.job_pool.ANSWER_SECONDS", 1)
    verdict = judge("double", "def double(size):\n    while True:\n        pass")
    assert (verdict.grade, verdict.score) == (Grade.FAILED, 0)
    assert verdict.message == "No answer: it did not end within 1 seconds."


def test_a_measurement_without_end_is_not_the_learners_fault(
    pool: JobPool, toy: Exercise, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*arguments: object) -> None:
        raise JobLate("it did not end within 120 seconds of computing")

    monkeypatch.setattr(pool, "measure", late)
    verdict = Judge(pool).judge(toy, "double", ["def double(size):\n    return 2 * size"])
    assert (verdict.grade, verdict.score) == (Grade.UNGRADED, None)
    assert "double could not be measured" in verdict.message


def test_the_same_source_is_tried_once(
    pool: JobPool, toy: Exercise, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Judge(pool)
    source = "def shrink(rows):\n    return rows[::2]"
    first = judge.judge(toy, "shrink", [source])
    monkeypatch.setattr(pool, "trial", None)
    assert judge.judge(toy, "shrink", ["unrelated = 1", source]) is first


def test_what_could_not_be_graded_is_tried_again(
    pool: JobPool, toy: Exercise, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*arguments: object) -> None:
        raise JobDied("its process ended with SIGKILL")

    judge = Judge(pool)
    source = "def shrink(rows):\n    return rows[::2]"
    with monkeypatch.context() as patch:
        patch.setattr(pool, "trial", die)
        assert judge.judge(toy, "shrink", [source]).grade is Grade.UNGRADED
    assert judge.judge(toy, "shrink", [source]).grade is Grade.PASSED


def test_it_remembers_a_bounded_number_of_verdicts(
    pool: JobPool, toy: Exercise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramlab_classroom.judge.judge.MAX_REMEMBERED", 2)
    judge = Judge(pool)
    for number in range(4):
        judge.judge(toy, "cause", [f"cause = 'leak {number}'"])
    assert [source for _, _, source in judge._verdicts] == ["cause = 'leak 2'", "cause = 'leak 3'"]


RIGHT = "def double(size):\n    return 2 * size"


def test_answers_to_several_tasks_are_found_at_once(
    pool: JobPool, toy: Exercise, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    find = pool.find

    def count(cells: dict[str, list[str]], rights: object) -> object:
        asked.append(list(cells))
        return find(cells)

    monkeypatch.setattr(pool, "find", count)
    verdicts = Judge(pool).judge_all(toy, {"double": [RIGHT], "cause": ["x = 1"]})
    assert {task: verdict.grade for task, verdict in verdicts.items()} == {
        "double": Grade.PASSED,
        "cause": Grade.UNANSWERED,
    }
    assert asked == [["double", "cause"]]


def test_a_cell_that_ends_whoever_parses_it_costs_no_other_task_its_points(
    pool: JobPool, toy: Exercise, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = pool.find

    def die_of_deadly(cells: dict[str, list[str]], rights: object) -> object:
        if ["deadly"] in cells.values():
            raise JobDied("its process ended with SIGSEGV")
        return find(cells)

    monkeypatch.setattr(pool, "find", die_of_deadly)
    verdicts = Judge(pool).judge_all(toy, {"double": [RIGHT], "cause": ["deadly"]})
    assert {task: verdict.grade for task, verdict in verdicts.items()} == {
        "double": Grade.PASSED,
        "cause": Grade.UNGRADED,
    }
