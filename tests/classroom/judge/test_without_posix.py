"""A learner's own check without POSIX, as on Windows: no fork, no limits, no timer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy_exercise

from vramlab_classroom.judge import job_pool
from vramlab_classroom.judge.job_pool import JobLate, JobPool
from vramlab_classroom.judge.task import Exercise

pytestmark = pytest.mark.long

SUPPORT = Path(toy_exercise.__file__).parent

WITHOUT_POSIX = """
import os, signal, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
del os.fork, os.readv, signal.setitimer
"""

AS_PYTHON = f"""{WITHOUT_POSIX}
import runpy
_, minus_p, minus_m, module = sys.argv
assert (minus_p, minus_m) == ("-P", "-m")
runpy.run_module(module, run_name="__main__")
"""
"""Takes what the pool gives to Python."""


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[JobPool]:
    (tmp_path / "python.py").write_text(AS_PYTHON)
    with JobPool([sys.executable, f"{tmp_path / 'python.py'}"], [SUPPORT]) as pool:
        yield pool


def test_a_check_measures_finds_the_answer_and_runs_it(pool: JobPool, toy: Exercise) -> None:
    task = toy.task("double")
    assert pool.measure(toy, task, [{"size": 3}]) == [{"arguments": {"size": 3}, "truth": 6}]
    source = pool.find({"double": ["def double(size):\n    return 2 * size"]})["double"]["source"]
    (outcome,) = pool.answers(toy, task, source, [{"size": 3}])
    assert outcome["value"] == 6
    half = "def shrink(kept):\n    return kept[:5]"
    tried = pool.trial(toy, toy.task("shrink"), half, {"size": 10})
    assert tried["achieved"] == "5 of 10 are left"


def test_what_one_answer_does_is_gone_for_the_next(pool: JobPool, toy: Exercise) -> None:
    task = toy.task("double")
    values = []
    for spoil in ("math.tau = 7", ""):
        source = f"import math\n{spoil}\ndef double(size):\n    return int(math.tau)"
        values.append(pool.answers(toy, task, source, [{"size": 3}])[0]["value"])
    assert values == [7, 6]


def test_an_answer_that_does_not_end_is_late_and_the_pool_goes_on(
    pool: JobPool, toy: Exercise, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = toy.task("double")
    monkeypatch.setattr(job_pool, "ANSWER_SECONDS", 1)
    with pytest.raises(JobLate, match="did not end within 1 seconds"):
        pool.answers(toy, task, "def double(size):\n    while True:\n        pass", [{"size": 3}])
    monkeypatch.undo()
    assert pool.answers(toy, task, "double = 6", [{"size": 3}])[0]["problem"]


def vramlab(*words: str) -> subprocess.CompletedProcess[str]:
    program = f"{WITHOUT_POSIX}\nfrom vramlab.cli import main\nsys.exit(main({list(words)!r}))"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )


def test_the_commands_of_learners_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nx = torch.ones(1024, device='cuda')\n")
    ran = vramlab("run", "--gpu", "T4", "--seconds", "60", f"{script}")
    assert (ran.returncode, "fits: cuda:0" in ran.stderr) == (0, True), ran.stderr
    opened = vramlab("lab", "--no-open", f"{tmp_path / 'course'}")
    assert opened.returncode == 0, opened.stderr
    assert (tmp_path / "course" / "start.ipynb").exists()


def test_grading_a_class_is_refused_in_a_line(tmp_path: Path) -> None:
    graded = vramlab("grade")
    assert graded.returncode == 2
    assert "needs Linux or macOS" in graded.stderr
    assert graded.stderr.count("\n") == 1
