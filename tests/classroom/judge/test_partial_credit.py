"""Points by the share of cases that are right: what earns some, and what none."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import stepwise_exercise

from vramlab_classroom.judge import jobs
from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.job_pool import JobPool
from vramlab_classroom.judge.judge import Judge
from vramlab_classroom.judge.partial_credit import partial_points, rule_of
from vramlab_classroom.judge.task import Config, Diagnose, Exercise, Fix, Predict
from vramlab_classroom.judge.verdict import CaseResult, Grade, Verdict

EXERCISE = stepwise_exercise.EXERCISE
RIGHT = "def rounded(size):\n    return -(-size // 8) * 8"


PRICE = EXERCISE.task("price")
assert isinstance(PRICE, Predict)


def cases(visible: str, hidden: str = "") -> list[CaseResult]:
    """Give cases of one rule from letters: r for right, w for wrong."""
    return [
        CaseResult({}, letter == "r", letter, "", visible=is_visible)
        for letters, is_visible in ((visible, True), (hidden, False))
        for letter in letters
    ]


@pytest.mark.parametrize(
    ("visible", "hidden", "points"),
    [
        ("rrrr", "rrrw", 2),  # 3 * 3/4 = 2.25, in steps of half a point 2
        ("wrrr", "rrrr", 2.5),  # all hidden ones, but 7 of 8: 3 * 7/8 = 2.625
        ("rrrr", "rrww", 1.5),  # 3 * 1/2
        ("rrrr", "rwww", 0),  # a quarter of the hidden ones is less than half
        ("rrrrrrrr", "wwww", 0),  # an answer that looks up the visible cases
        ("wwww", "rrww", 0),  # half of the hidden ones, but 2 of all 8
        ("wwrr", "rrrw", 1.5),  # 3 * 5/8 = 1.875
        ("rrw", "", 2),  # on the visible cases alone
    ],
)
def test_points_are_in_steps_of_half_a_point_by_the_hidden_cases(
    visible: str, hidden: str, points: float
) -> None:
    assert partial_points(PRICE, cases(visible, hidden), in_words=False) == points


def judged(pool: JobPool, source: str, seed: str | None = "s") -> Verdict:
    return Judge(pool, seed).judge(EXERCISE, "price", [RIGHT, source])


def test_an_answer_that_forgets_one_rule_earns_what_the_others_are_worth(pool: JobPool) -> None:
    verdict = judged(pool, "def price(size):\n    return 10 + rounded(size)")  # 10 for nothing
    # Of the cases, 7 of 8 are right: 3 * 7/8 = 2.625.
    assert (verdict.grade, verdict.score) == (Grade.PARTLY, 2.5)
    assert f"{verdict}".splitlines()[:2] == [
        "price: partly right in 7 of 8 cases, 2.5 of 3 points",
        "1 of 8 cases are wrong; the first is off by +10.",
    ]


def test_an_answer_that_is_right_by_accident_earns_nothing(pool: JobPool) -> None:
    looked_up = "{0: 0, 3: 18, 16: 26, 17: 34}"
    verdict = judged(pool, f"def price(size):\n    return {looked_up}.get(size, 50)")
    # All visible cases were looked up; of the hidden ones, 40 costs 50 and the others do not.
    assert [case.right for case in verdict.cases] == [True] * 4 + [False, False, True, False]
    assert (verdict.grade, verdict.score) == (Grade.FAILED, 0)


def of_rules(rights: str, rules: str, task: Predict = PRICE) -> float:
    """Give the points for hidden cases, each right or wrong, and of a rule."""
    told = [
        CaseResult({"size": rule == "b", "kind": rule}, right == "r", right, "", visible=False)
        for right, rule in zip(rights, rules, strict=True)
    ]
    return partial_points(task, told, in_words=False)


def test_each_rule_is_worth_the_same_however_many_cases_are_about_it() -> None:
    assert of_rules("rrrrrrrw", "aaaaaaab") == 1.5  # one of two rules, though 7 of 8 cases
    assert of_rules("rrrrrrwr", "aaaaaaab") == 2.5  # (6/7 + 1) / 2 of 3 points is 2.79
    assert of_rules("rrrw", "aabc") == 2  # two of three


def test_a_task_says_which_rule_a_case_is_about() -> None:
    by_kind = replace(PRICE, rule=lambda size, kind: kind in "ab")
    assert of_rules("rrwr", "abac", by_kind) == 2.5  # (2/3 + 1) / 2 of 3 points is 2.5
    assert of_rules("rrrw", "abac", by_kind) == 1.5


def test_a_case_that_needs_several_rules_counts_only_for_all_points() -> None:
    mixed = replace(PRICE, rule=lambda size, kind: None if kind == "m" else kind)
    assert of_rules("rwww", "abmm", mixed) == 1.5  # one of two rules
    assert of_rules("rrwr", "abmm", mixed) == 2.5  # not 3
    assert of_rules("rrrr", "abmm", mixed) == 3
    assert of_rules("rrrw", "mmmm", mixed) == 2  # where all do, their share counts: 3/4 of 3


def test_the_same_in_every_case_earns_nothing() -> None:
    always = [replace(case, answered="8") for case in cases("rr", "rrw")]
    assert partial_points(PRICE, always, in_words=False) == 0
    assert partial_points(PRICE, always[:4], in_words=False) == 3  # where it is right


def test_rules_do_not_hang_on_the_order_of_arguments() -> None:
    configs = [{"a": True, "b": False}, {"b": False, "a": True}, {"a": False, "b": True}]
    assert [rule_of(PRICE, config) == rule_of(PRICE, configs[0]) for config in configs] == [
        True,
        True,
        False,
    ]


def in_words(*pairs: str) -> float:
    """Give the points for answers in words: 'ab' answers a where b is right."""
    told = [
        CaseResult({}, answer == truth, repr(answer), truth, visible=False)
        for answer, truth in pairs
    ]
    return partial_points(PRICE, told, in_words=True)


def test_a_word_is_known_to_who_answers_it_where_it_is_right_and_nowhere_else() -> None:
    # Of the cases in which a is right or answered 1 of 2 is right; of those of b none; c and d all:
    # (1/2 + 0 + 1 + 1) / 4 of 3 points is 1.875.
    assert in_words("aa", "ab", "cc", "dd") == 1.5
    assert in_words("aa", "ab", "cc") == 1.5  # (1/2 + 0 + 1) / 3
    assert in_words("aa", "ab") == 0  # the same word in every case: 1/4
    assert in_words(*["aa"] * 6, *["bb"] * 5, "ab") == 2.5  # (6/7 + 5/6) / 2 of 3 is 2.54


class Replies:
    """A pool in which a repair always says the same."""

    def __init__(self, word: str) -> None:
        self.word = word

    def trial(self, exercise: Exercise, task: Fix, source: str, config: Config) -> Config:
        if config["truth"] == self.word:
            return {"achieved": self.word}
        return {"problem": "wrong", "answered": self.word, "right": config["truth"]}


def test_a_repair_in_words_earns_by_its_cases_and_nothing_for_always_the_same() -> None:
    cases = tuple({"truth": truth} for truth in ("yes", "yes", "yes", "no"))
    task = Fix(
        name="leaks",
        points=4,
        minutes=1,
        by_cases=True,
        visible=cases,
        hidden=lambda random: [],
        trial=lambda answer: "",
    )
    exercise = Exercise(name="leaks", module="", tasks=(task,))

    def verdict(asked: Fix) -> Verdict:
        return Judge(Replies("yes"))._judge_repair(exercise, asked, "")  # type: ignore[arg-type]

    # Right in 3 of 4 cases; but (3/4 + 0) / 2 is less than a half.
    assert verdict(task).score == 0
    assert [case.right for case in verdict(task).cases] == [True, True, True, False]
    more = replace(task, visible=(*cases[:3], {"truth": "yes", "rows": 2}))
    assert verdict(more).grade is Grade.PASSED


@pytest.mark.parametrize(
    ("exercise", "task", "mistake", "points"),
    [
        # Right for all optimizers where nothing is frozen: (1 + 1/3) / 2 of 3
        ("04_parameters", "which_optimizer", "with all parameters", 2),
        ("04_parameters", "which_optimizer", "counted the gradients", 0),
        # One of two readings understood: (1 + 0 + 1/2) / 3 of 4
        ("06_optimizer_states", "which_optimizer", "assumed the default", 2),
        ("06_optimizer_states", "which_optimizer", "swapped loop and foreach", 2.5),
    ],
)
def test_named_mistakes_of_diagnoses_earn_what_they_understand(
    exercise: str, task: str, mistake: str, points: float
) -> None:
    asked = find_exercise(exercise).task(task)
    assert isinstance(asked, Diagnose)
    (named,) = (each for each in asked.mistakes if mistake in each.message)
    told = []
    for config in asked.hidden(Random(1)):
        measured = jobs.measure(asked, config)
        answer, truth = named.answer(**measured["arguments"]), measured["truth"]
        told.append(CaseResult(config, answer == truth, repr(answer), truth, visible=False))
    assert partial_points(asked, told, in_words=True) == points
