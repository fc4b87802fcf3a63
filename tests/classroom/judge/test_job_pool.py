"""The pool: a process of its own, with limits, that outlives the jobs it does."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import toy_exercise

from vramlab_classroom.judge import job_pool as job_pool
from vramlab_classroom.judge import warm_job_server
from vramlab_classroom.judge.job_pool import JobDied, JobLate, JobPool, JobPoolError
from vramlab_classroom.judge.task import Exercise

SUPPORT = Path(toy_exercise.__file__).parent


def ask(pool: JobPool, toy: Exercise, source: str) -> dict:
    (outcome,) = pool.answers(toy, toy.task("double"), source, [{"size": 3}])
    return dict(outcome)


def test_answers_come_back_as_data_of_exact_types(pool: JobPool, toy: Exercise) -> None:
    source = "def double(size):\n    return 2 * size"
    outcomes = pool.answers(toy, toy.task("double"), source, [{"size": 3}, {"size": 5}])
    assert [dict(outcome) for outcome in outcomes] == [
        {"type": "int", "value": 6, "shown": "6"},
        {"type": "int", "value": 10, "shown": "10"},
    ]


@pytest.mark.parametrize(
    ("value", "kind"),
    [("True", "bool"), ("6.5", "float"), ("None", "NoneType"), ("[6]", "list")],
)
def test_what_is_no_int_or_str_has_no_value(
    pool: JobPool, toy: Exercise, value: str, kind: str
) -> None:
    assert ask(pool, toy, f"def double(size):\n    return {value}") == {
        "type": kind,
        "value": None,
        "shown": value,
    }


def test_a_subclass_of_int_is_no_int(pool: JobPool, toy: Exercise) -> None:
    source = "class Int(int):\n    pass\ndef double(size):\n    return Int(6)"
    assert ask(pool, toy, source)["type"] == "Int"


def test_an_answer_that_cannot_be_shown_is_still_data(pool: JobPool, toy: Exercise) -> None:
    source = (
        "class A:\n    def __repr__(self):\n        return 1 // 0\n"
        "def double(size):\n    return A()"
    )
    assert ask(pool, toy, source)["shown"] == "something of type A"


def test_a_huge_int_is_a_problem_not_a_flood(pool: JobPool, toy: Exercise) -> None:
    outcome = ask(pool, toy, "def double(size):\n    return 1 << 5000")
    assert outcome == {"problem": "the answer is a number of 5001 bits"}


def test_an_error_is_told_with_the_learners_line(pool: JobPool, toy: Exercise) -> None:
    outcome = ask(pool, toy, "def double(size):\n    rest = size\n    return 1 // (rest - 3)")
    assert outcome["problem"] == (
        "ZeroDivisionError: integer division or modulo by zero\n"
        "    in the line: return 1 // (rest - 3)"
    )


def test_an_answer_that_does_not_end_is_late_and_the_pool_goes_on(
    toy: Exercise, pool: JobPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pool, "ANSWER_SECONDS", 1)
    with pytest.raises(JobLate, match="did not end within 1 seconds"):
        ask(pool, toy, "def double(size):\n    while True:\n        pass")
    assert ask(pool, toy, "def double(size):\n    return 6")["value"] == 6


def test_an_answer_that_takes_all_memory_gets_a_memory_error(pool: JobPool, toy: Exercise) -> None:
    outcome = ask(pool, toy, "def double(size):\n    return [0] * 10**12")
    assert outcome["problem"].startswith("MemoryError")


def test_endless_recursion_is_a_problem_of_the_answer(pool: JobPool, toy: Exercise) -> None:
    outcome = ask(pool, toy, "def double(size):\n    return double(size)")
    assert outcome["problem"].startswith("RecursionError")


def test_source_that_is_nested_too_deep_does_no_harm(pool: JobPool, toy: Exercise) -> None:
    source = "def double(size):\n    return " + "(" * 100_000 + "6" + ")" * 100_000
    assert pool.find({"double": [source]})["double"]["problem"]
    assert ask(pool, toy, "def double(size):\n    return 6")["value"] == 6


def test_a_job_that_dies_is_told_from_one_that_is_killed(pool: JobPool, toy: Exercise) -> None:
    """Only the system kills jobs: it may have been out of memory."""
    source = "def broken_die(x):\n    return 1"
    died = pool.trial(toy, toy.task("broken_die"), source, {"how": "die"})
    assert died == {"problem": "No answer: its process ended with SIGABRT."}
    with pytest.raises(JobDied, match="SIGKILL"):
        JobDied("its process ended with SIGKILL", is_of_answer=False).as_problem()


def test_a_fault_of_the_task_is_not_the_learners(pool: JobPool, toy: Exercise) -> None:
    source = "def broken_raise(x):\n    return 1"
    with pytest.raises(JobPoolError, match="a fault of the task"):
        pool.trial(toy, toy.task("broken_raise"), source, {"how": "raise"})


def test_what_one_answer_does_is_gone_for_the_next(pool: JobPool, toy: Exercise) -> None:
    leave = "import math\nLEFT = [1]\ndef double(size):\n    return 6"
    assert ask(pool, toy, leave)["value"] == 6
    outcome = ask(pool, toy, "def double(size):\n    return len(LEFT)")
    assert outcome["problem"].startswith("NameError: name 'LEFT' is not defined")


def test_settings_of_this_machine_do_not_reach_the_pool(
    toy: Exercise, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "VRAMLAB_GPU", "VRAMLAB_CUDNN"):
        monkeypatch.setenv(name, "nonsense")
    seen = job_pool.neutral_environment()
    assert "PYTORCH_CUDA_ALLOC_CONF" in os.environ
    settings = {name: seen[name] for name in seen if name.startswith(("PYTORCH", "VRAMLAB"))}
    assert settings == {"VRAMLAB_CUDNN": "table"}  # no library of this machine's


def test_a_pool_whose_process_is_gone_says_so_and_starts_another(
    toy: Exercise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(warm_job_server.VARIABLE)
    with JobPool() as pool:
        for server, asked in (
            (pool._plain[False], lambda: ask(pool, toy, "def double(size):\n    return 6")),
            (pool._server, lambda: pool.find({"double": ["double = 6"]})),
        ):
            assert asked()
            assert isinstance(server._process, job_pool._Started)
            server._process._process.kill()
            server._process._process.wait()
            with pytest.raises(JobPoolError, match="the judge's process ended"):
                asked()
            assert asked()


LISTING = "import sys\ndef listed():\n    return {'modules': sorted(sys.modules)}\n"
"""Lists what the process of a job has imported."""


def test_forked_pools_have_torch_at_once_and_search_paths_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "listing.py").write_text(LISTING)
    limits: dict[str, Any] = {"cpu_seconds": 10, "reply_bytes": 2**20, "arguments": {}}
    with JobPool(search_path=[tmp_path]) as first, JobPool() as second:
        assert "torch" in first.call("listing", "listed", **limits)["modules"]
        assert isinstance(first._server._process, job_pool._Forked)
        with pytest.raises(JobPoolError, match="No module named 'listing'"):
            second.call("listing", "listed", **limits)


def test_a_pool_in_a_sandbox_or_of_another_python_is_not_forked() -> None:
    with JobPool(command=[sys.executable, "-s"]) as pool:
        assert pool.find({"double": ["double = 6"]})
        assert isinstance(pool._server._process, job_pool._Started)


def test_forked_pools_end_with_who_gave_them_and_another_is_started(
    toy: Exercise, monkeypatch: pytest.MonkeyPatch
) -> None:
    with JobPool() as pool:
        with warm_job_server.WarmJobServer(job_pool.neutral_environment()) as warm:
            monkeypatch.setenv(warm_job_server.VARIABLE, f"{warm.address}")
        assert pool.find({"double": ["double = 6"]})
        assert isinstance(pool._server._process, job_pool._Started)
