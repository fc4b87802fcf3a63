"""Judges of one machine share what they measure: each case is measured by one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import toy_exercise

from vramlab_classroom.judge import truths
from vramlab_classroom.judge.job_pool import JobDied, JobPool
from vramlab_classroom.judge.judge import Judge
from vramlab_classroom.judge.truths import SharedTruths
from vramlab_classroom.judge.verdict import Grade

TOY = toy_exercise.EXERCISE
RIGHT = ["def double(size):\n    return 2 * size"]


class Counting:
    """A pool that counts what it measures."""

    def __init__(self, pool: JobPool, *, dies: int = 0) -> None:
        self._pool = pool
        self._dies = dies
        self.measured: list[Mapping[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def measure(self, exercise: Any, task: Any, configs: Sequence[Mapping[str, Any]]) -> Any:
        if self._dies:
            self._dies -= 1
            raise JobDied("its process ended with SIGKILL")
        self.measured += configs
        return self._pool.measure(exercise, task, configs)


def test_each_case_is_measured_once(pool: JobPool, tmp_path: Path) -> None:
    pools = [Counting(pool), Counting(pool)]
    verdicts = [
        Judge(each, "a seed", SharedTruths(tmp_path)).judge(TOY, "double", RIGHT)  # type: ignore[arg-type]
        for each in pools
    ]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0].grade is Grade.PASSED
    cases = {case.name for case in verdicts[0].cases}  # of three that are drawn, two may be alike
    assert len(cases) > 2
    assert [len(each.measured) for each in pools] == [len(cases), 0]


def test_who_cannot_measure_leaves_it_to_the_next(pool: JobPool, tmp_path: Path) -> None:
    dying, sound = Counting(pool, dies=1), Counting(pool)
    first = Judge(dying, None, SharedTruths(tmp_path)).judge(TOY, "double", RIGHT)  # type: ignore[arg-type]
    assert first.grade is Grade.UNGRADED
    second = Judge(sound, None, SharedTruths(tmp_path)).judge(TOY, "double", RIGHT)  # type: ignore[arg-type]
    assert second.grade is Grade.PASSED


def test_a_judge_that_died_is_not_waited_for_without_end(
    pool: JobPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truths, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(SharedTruths, "claim", lambda shared, key: False)
    monkeypatch.setattr(Path, "exists", lambda path: True)
    sound = Counting(pool)
    verdict = Judge(sound, None, SharedTruths(tmp_path)).judge(TOY, "double", RIGHT)  # type: ignore[arg-type]
    assert verdict.grade is Grade.PASSED
    assert len(sound.measured) == 2
