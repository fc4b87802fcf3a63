"""Comes to a verdict on an answer: tries it on every case and compares with what was measured."""

from __future__ import annotations

import atexit
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from random import Random
from typing import Any

from vramlab.units import KIB, mib
from vramlab_classroom.judge import hidden_cases
from vramlab_classroom.judge.follow_through import better_of, right_alone
from vramlab_classroom.judge.job_pool import JobDied, JobLate, JobPool, JobPoolError
from vramlab_classroom.judge.mistakes import Try, shared_by_wrong, without_name
from vramlab_classroom.judge.partial_credit import partial_points
from vramlab_classroom.judge.task import Config, Diagnose, Exercise, Fix, Predict, Task
from vramlab_classroom.judge.truths import SharedTruths, Truth
from vramlab_classroom.judge.two_mistakes import lead_on, two_at_once
from vramlab_classroom.judge.verdict import CaseResult, Grade, Spent, Verdict, in_short

MAX_REMEMBERED = 1_000
"""So many verdicts are remembered, a class's on a task or two: memory stays flat."""

NOT_WHOLE = ("float", "float64", "float32", "float16", "Fraction", "Decimal")
"""Types of numbers that count as the whole numbers they are, if they are."""

NOT_IMPLEMENTED = "NotImplementedError: not all cases are answered yet."


class Judge:
    """Judges answers to any exercise.

    Remembers what it measured, since a class shares its hidden cases, and its verdicts, since the
    same source always gets the same one. What could not be graded is not remembered.
    """

    def __init__(
        self, pool: JobPool, seed: str | None = None, shared: SharedTruths | None = None
    ) -> None:
        """Prepare.

        Args:
            pool: where answers are tried and truths are measured.
            seed: decides the hidden cases; without one, only the visible cases are tried.
            shared: what judges of this machine have measured.
        """
        self._shared = shared
        self._pool = pool
        self._seed = seed
        self._truths: dict[str, Truth] = {}
        self._hidden_cases: dict[tuple[str, str], list[Config]] = {}
        self._verdicts: dict[tuple[str, str, str], Verdict] = {}
        self._visible: Judge | None = None

    def variant(self, name: str) -> Judge:
        """Return a judge with hidden cases of its own, who has the visible ones from this one.

        Args:
            name: of the variant, such as a student's; the same name gives the same cases.
        """
        seed = None if self._seed is None else f"{self._seed}/{name}"
        other = Judge(self._pool, seed, self._shared)
        other._visible = self
        return other

    def judge(
        self,
        exercise: Exercise,
        name: str,
        cells: Sequence[str],
        rights: Mapping[str, str] | None = None,
        right: Collection[str] = (),
    ) -> Verdict:
        """Judge the answer to the task `name` that is found in the sources of code cells.

        Args:
            exercise: what it answers.
            name: of the task.
            cells: the sources.
            rights: right answers to earlier tasks that it may build on; see `follow_through.py`.
            right: earlier tasks whose answers are right.
        """

        def judged() -> Verdict:
            found = self._pool.find({name: cells}, rights)[name]
            return self.judge_found(exercise, name, found, right)

        return self._verdict_or_failure(exercise.task(name), judged)

    def judge_found(
        self,
        exercise: Exercise,
        name: str,
        found: Mapping[str, Any],
        right: Collection[str] = (),
    ) -> Verdict:
        """Judge the answer to the task `name` that a pool has found: see `JobPool.find`.

        Args:
            exercise: what it answers.
            name: of the task.
            found: the answer.
            right: earlier tasks whose answers are right: on these it may build as they are.
        """
        task = exercise.task(name)
        if "source" in found:
            own = self._verdict(exercise, task, found["source"])
        else:
            grade = Grade.UNANSWERED if found.get("unanswered") else Grade.FAILED
            own = Verdict(task.name, task.points, grade, found["problem"])
        wrong = [name for name in found.get("replaced", ()) if name not in right]
        if own.grade is Grade.PASSED or not wrong:
            return own
        return better_of(own, self._verdict(exercise, task, found["followed"]), wrong)

    def judge_all(
        self,
        exercise: Exercise,
        cells: Mapping[str, Sequence[str]],
        rights: Mapping[str, str] | None = None,
    ) -> dict[str, Verdict]:
        """Judge the answers to several tasks.

        Args:
            exercise: what they answer.
            cells: by the name of each task, the sources of the code cells to find its answer in.
            rights: right answers to earlier tasks that they may build on.
        """
        found: Mapping[str, Mapping[str, Any]] = {}
        # A cell can be written so that who parses it does not end. Only its task should suffer.
        with suppress(JobPoolError, JobLate):
            found = self._pool.find(cells, rights)
        verdicts: dict[str, Verdict] = {}
        for name in cells:
            right = right_alone(verdicts.values())
            verdicts[name] = (
                self.judge_found(exercise, name, found[name], right)
                if found
                else self.judge(exercise, name, cells[name], rights, right)
            )
        return verdicts

    def _verdict(self, exercise: Exercise, task: Task, source: str) -> Verdict:
        key = (exercise.module, task.name, source)
        if key not in self._verdicts:
            verdict = self._verdict_or_failure(task, lambda: self._judge(exercise, task, source))
            if verdict.grade is Grade.UNGRADED:
                return verdict
            self._verdicts[key] = verdict
            if len(self._verdicts) > MAX_REMEMBERED:
                del self._verdicts[next(iter(self._verdicts))]
        return self._verdicts[key]

    def _verdict_or_failure(self, task: Task, judged: Callable[[], Verdict]) -> Verdict:
        """Return a verdict, also if the pool did not come to one."""
        try:
            return judged()
        except JobLate as late:
            return Verdict(task.name, task.points, Grade.FAILED, f"No answer: {late}.")
        except JobDied as death:
            message = f"The answer could not be tried: {death}."
            return Verdict(task.name, task.points, Grade.UNGRADED, message)
        except JobPoolError as failure:
            return Verdict(task.name, task.points, Grade.UNGRADED, str(failure))

    def _judge(self, exercise: Exercise, task: Task, source: str) -> Verdict:
        if isinstance(task, Fix):
            return self._judge_repair(exercise, task, source)
        assert isinstance(task, Predict | Diagnose)
        return self._judge_answers(exercise, task, source)

    def arguments(self, exercise: Exercise, name: str) -> Mapping[str, Any]:
        """Return what a task's first visible case shows, or passes to the learner's function."""
        task = exercise.task(name)
        arguments: Mapping[str, Any] = self._truth(exercise, task, task.visible[0])["arguments"]
        return arguments

    def _hidden(self, exercise: Exercise, task: Task) -> list[Config]:
        if self._seed is None:
            return []
        key = (exercise.module, task.name)
        if key not in self._hidden_cases:
            seed = hidden_cases.fair_seed(task, f"{self._seed}/{exercise.name}/{task.name}")
            if not isinstance(task, Fix):
                self._measure_with_others(exercise, task, list(task.hidden(Random(seed))))
            measure = partial(self._truth, exercise, task)
            drawn = hidden_cases.draw(task, Random(seed), measure)
            self._hidden_cases[key] = [case for case in drawn if case not in task.visible]
        return self._hidden_cases[key]

    def _judge_answers(self, exercise: Exercise, task: Predict | Diagnose, source: str) -> Verdict:
        configs = [*task.visible, *self._hidden(exercise, task)]
        self._measure_with_others(exercise, task, configs)
        is_diagnosis = isinstance(task, Diagnose)
        calls = configs
        if is_diagnosis:
            calls = [self._truth(exercise, task, config)["arguments"] for config in configs]
        outcomes = self._pool.answers(exercise, task, source, calls)
        if all(outcome.get("unanswered") for outcome in outcomes):
            return Verdict(task.name, task.points, Grade.UNANSWERED, outcomes[0]["problem"])
        tries = [
            Try(arguments, outcome, self._truth(exercise, task, config)["truth"])
            for config, arguments, outcome in zip(configs, calls, outcomes, strict=True)
        ]
        cases = tuple(
            CaseResult(
                config,
                each.is_right,
                each.shown,
                str(each.truth),
                config in task.visible,
                evidence=f"{number}: {in_short(each.arguments)}" if is_diagnosis else "",
            )
            for number, (config, each) in enumerate(zip(configs, tries, strict=True), 1)
        )
        if all(each.is_right for each in tries):
            return Verdict(task.name, task.points, Grade.PASSED, "", cases)
        message = _explain(task, tries, cases)
        earned = partial_points(task, cases, in_words=isinstance(tries[0].truth, str))
        if earned:
            return Verdict(task.name, task.points, Grade.PARTLY, message, cases, earned)
        return Verdict(task.name, task.points, Grade.FAILED, message, cases)

    def _judge_repair(self, exercise: Exercise, task: Fix, source: str) -> Verdict:
        results: list[CaseResult] = []
        message, in_words = "", False
        for visible, configs in ((True, task.visible), (False, self._hidden(exercise, task))):
            for config in configs:
                outcome = self._pool.trial(exercise, task, source, config)
                if outcome.get("unanswered"):
                    return Verdict(task.name, task.points, Grade.UNANSWERED, outcome["problem"])
                if "problem" in outcome:
                    case = "" if visible else f" (tried with {_show_config(config)})"
                    message = message or f"{outcome['problem']}{case}"
                    answered, right = outcome.get("answered") or "fails", outcome.get("right", "")
                    in_words |= bool(right)
                    if task.by_cases or (visible and len(task.visible) > 1):
                        results.append(CaseResult(config, False, answered, right, visible))
                    if task.by_cases:
                        continue
                    return Verdict(task.name, task.points, Grade.FAILED, message, tuple(results))
                achieved = outcome["achieved"]
                is_scored = "steps" in outcome
                spent = Spent(outcome["size_bytes"], outcome["steps"]) if is_scored else None
                answered = achieved if task.by_cases else "runs"
                results.append(CaseResult(config, True, answered, achieved, visible, spent))
        if not message:
            return Verdict(task.name, task.points, Grade.PASSED, "", tuple(results))
        earned = partial_points(task, results, in_words=in_words)
        grade = Grade.PARTLY if earned else Grade.FAILED
        return Verdict(task.name, task.points, grade, message, tuple(results), earned or None)

    def _truth(self, exercise: Exercise, task: Task, config: Config) -> Truth:
        if self._visible is not None and config in task.visible:
            return self._visible._truth(exercise, task, config)
        key = _key(exercise, task, config)
        if key not in self._truths:
            self._measure_with_others(exercise, task, [config])
        if key not in self._truths:
            (self._truths[key],) = self._measured(exercise, task, [config])
        return self._truths[key]

    def _measured(
        self, exercise: Exercise, task: Task, configs: Sequence[Config]
    ) -> Sequence[Truth]:
        try:
            return self._pool.measure(exercise, task, configs)
        except JobLate as late:
            raise JobPoolError(f"{task.name} could not be measured: {late}") from late

    def _measure_with_others(
        self, exercise: Exercise, task: Task, configs: Sequence[Config]
    ) -> None:
        """Measure those cases that no other judge does, and take the rest from them."""
        if self._visible is not None:
            self._visible._measure_with_others(
                exercise, task, [config for config in configs if config in task.visible]
            )
            configs = [config for config in configs if config not in task.visible]
        asked = {_key(exercise, task, config): config for config in configs}
        missing = {key: config for key, config in asked.items() if key not in self._truths}
        if self._shared is None:
            self._truths |= self._measured_by_key(exercise, task, missing)
            return
        known = {key: truth for key in missing if (truth := self._shared.find(key)) is not None}
        ours = {
            key: config
            for key, config in missing.items()
            if key not in known and self._shared.claim(key)
        }
        try:
            measured = self._measured_by_key(exercise, task, ours)
        except BaseException:
            for key in ours:
                self._shared.give_up(key)
            raise
        for key, truth in measured.items():
            self._shared.put(key, truth)
        self._truths |= known | measured
        for key in missing.keys() - self._truths.keys():
            if (truth := self._shared.wait(key)) is not None:
                self._truths[key] = truth

    def _measured_by_key(
        self, exercise: Exercise, task: Task, configs: Mapping[str, Config]
    ) -> dict[str, Truth]:
        if not configs:
            return {}
        return dict(zip(configs, self._measured(exercise, task, [*configs.values()]), strict=True))


def _key(exercise: Exercise, task: Task, config: Config) -> str:
    return json.dumps([exercise.module, task.name, config], sort_keys=True)


def _explain(task: Predict | Diagnose, tries: Sequence[Try], cases: Sequence[CaseResult]) -> str:
    """Name the likely mistake behind a wrong answer."""
    wrong = [each for each in tries if not each.is_right]
    for each in wrong:
        if "problem" in each.outcome:
            return f"{each.outcome['problem'] or NOT_IMPLEMENTED}"
    first = wrong[0]
    if first.outcome["type"] != type(first.truth).__name__:
        return _explain_type(task, first)
    # Who made a mistake made it in every case, also where it does not show.
    for mistake in task.mistakes:
        if all(each.agrees(mistake) for each in tries):
            return mistake.message
    if both := two_at_once(task.mistakes, tries):
        return lead_on(both, tries, cases)
    if not isinstance(first.truth, int):
        if f"{first.outcome['value']}".strip().casefold() == first.truth.casefold():
            return f"It is spelled {first.truth!r}."
        if len(tries) == 1:
            return "That is not what happened."
        (said, was), often = Counter((each.shown, each.truth) for each in wrong).most_common(1)[0]
        return f"In {often} of {len(tries)} cases you answered {said}, and it was {was!r}."
    if all(each.outcome["type"] == "int" for each in tries) and (found := without_name(tries)):
        return found
    difference = first.outcome["value"] - first.truth
    size = f"{difference:+}"
    if abs(difference) >= KIB:
        size += f" ({mib(difference):+.4f} MiB)"
    shared = shared_by_wrong(tries)
    which = f", all with {shared}" if shared else ""
    return f"{len(wrong)} of {len(tries)} cases are wrong{which}; the first is off by {size}."


def _explain_type(task: Task, wrong: Try) -> str:
    kind, shown = wrong.outcome["type"], wrong.outcome["shown"]
    if kind == "NoneType":
        return f"{task.name} gave None. Does every path through it end in a return?"
    if kind in NOT_WHOLE and isinstance(wrong.truth, int):
        return (
            f"{task.name} gave the {kind} {shown}, but bytes are counted in whole numbers: "
            "divide with //, and round up with -(-a // b)."
        )
    wanted = "an int" if isinstance(wrong.truth, int) else "a str"
    return f"{task.name} gave {shown} ({kind}); it should be {wanted}."


def _show_config(config: Config) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in config.items())


@cache
def shared_judge(seed: str | None = None, command: tuple[str, ...] = ()) -> Judge:
    """Return this process's judge for a seed, so that nothing is measured, or started, twice.

    Args:
        seed: see `Judge`.
        command: of its pool; see `JobPool`.
    """
    return Judge(_shared_pool(command), seed)


@cache
def _shared_pool(command: tuple[str, ...]) -> JobPool:
    pool = JobPool(command)
    atexit.register(pool.close)
    return pool
