"""Code that has broken out of the language of answers meets the walls around it.

The language is broken on purpose (`broken_language.py`): answers here are any Python. What each
tries is in `escapes.py`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import broken_language
import escapes
import pytest

from vramlab.units import MIB
from vramlab_classroom.judge import job_pool as job_pool
from vramlab_classroom.judge.job_pool import JobDied, JobLate, JobPool, JobPoolError
from vramlab_classroom.judge.judge import Judge
from vramlab_classroom.judge.verdict import Grade
from vramlab_classroom.judge.warm_job_server import VARIABLE
from vramlab_classroom.sandbox.bubblewrap import (
    SCRATCH,
    Bubblewrap,
    LimitsOnly,
    Sandbox,
    SandboxError,
    named,
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="the walls are those of Linux"),
]

SUPPORT = Path(broken_language.__file__).parent
EXERCISE = broken_language.EXERCISE
ANSWER = EXERCISE.task("answer")
PROGRAM = EXERCISE.task("program")
RIGHT = f"def answer():\n    return {broken_language.TRUTH}"

Escape = Callable[..., object]


def around() -> Sandbox:
    """Give the sandbox to try the walls of: bubblewrap, or that of `VRAMLAB_TEST_SANDBOX`."""
    try:
        return named(os.environ.get("VRAMLAB_TEST_SANDBOX", Bubblewrap.name))
    except SandboxError as error:
        pytest.skip(str(error))


def pool_in(sandbox: Sandbox, hidden: Path) -> JobPool:
    return JobPool(
        command=sandbox.prefix(visible=[SUPPORT], hidden=[hidden]), search_path=[SUPPORT]
    )


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_pool, "TORCH_MODULES", ())
        patch.delenv(VARIABLE)
        patch.setattr(job_pool, "ANSWER_SECONDS", 4)
        patch.setattr(job_pool, "TRIAL_CPU_SECONDS", 4)
        patch.setattr(job_pool, "SPARE_WALL_SECONDS", 0)
        yield


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lay out what an answer must not see."""
    root = tmp_path_factory.mktemp("course")
    for name in (
        "autograder/gradebook.db",
        "autograder/hidden_seed.txt",
        "autograder/submitted/ada/02_pages_and_blocks/02_pages_and_blocks.ipynb",
        "solutions/02_pages_and_blocks/02_pages_and_blocks.ipynb",
    ):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("private")
    return root


@pytest.fixture(scope="module")
def boxed(course: Path) -> Iterator[JobPool]:
    """Give a pool in a sandbox."""
    with pool_in(around(), course) as pool:
        yield pool


@pytest.fixture(scope="module")
def unboxed(course: Path) -> Iterator[JobPool]:
    """Give a pool without a sandbox."""
    with pool_in(LimitsOnly(), course) as pool:
        yield pool


@pytest.fixture(params=["boxed", "unboxed"])
def any_pool(request: pytest.FixtureRequest) -> JobPool:
    pool: JobPool = request.getfixturevalue(request.param)
    return pool


def answered(pool: JobPool, source: str, **arguments: Any) -> dict[str, Any]:
    (outcome,) = pool.answers(EXERCISE, ANSWER, source, [arguments])
    return dict(outcome)


def escaped(pool: JobPool, escape: Escape, **arguments: Any) -> str:
    """Run an escape as an answer in plain Python; give what it tells."""
    outcome = answered(pool, escapes.as_answer(escape), **arguments)
    assert "problem" not in outcome, outcome["problem"]
    return f"{outcome['value']}"


def tried(pool: JobPool, escape: Escape, **arguments: Any) -> str:
    """Run an escape as a repaired program that has broken out of its language."""
    source = escapes.as_answer(escape, "program")
    return f"{pool.trial(EXERCISE, PROGRAM, source, arguments)['achieved']}"


def ended(pool: JobPool, escape: Escape, **arguments: Any) -> str:
    """Run an escape that ends its process as a repaired program; return its verdict."""
    source = escapes.as_answer(escape, "program")
    return f"{pool.trial(EXERCISE, PROGRAM, source, arguments)['problem']}"


def trusted(pool: JobPool, escape: Escape, **arguments: Any) -> str:
    """Run an escape as code of the package, which may write files and start processes."""
    config = {"name": escape.__name__, **arguments}
    return f"{pool.measure(EXERCISE, ANSWER, [config])[0]['truth']}"


def is_well(pool: JobPool) -> bool:
    """Return whether the next answer is judged as if nothing had happened."""
    (outcome,) = pool.answers(EXERCISE, ANSWER, RIGHT, [{}])
    return dict(outcome) == {"type": "int", "value": 42, "shown": "42"}


def test_the_language_is_broken(any_pool: JobPool) -> None:
    assert tried(any_pool, escapes.read, path=escapes.__file__).startswith('"""What code could')


# What a sandbox keeps from an answer.


def test_there_is_no_network(boxed: JobPool, unboxed: JobPool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = escapes.as_answer(escapes.connect, "program")
        assert trusted(boxed, escapes.connect, port=port) == "ConnectionRefusedError"
        assert boxed.trial(EXERCISE, PROGRAM, program, {"port": port}) == {
            "achieved": "ConnectionRefusedError"
        }
        for pool in (boxed, unboxed):
            assert escaped(pool, escapes.connect, port=port) == "PermissionError"
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
        # The escape is one that does connect where nothing stops it.
        assert trusted(unboxed, escapes.connect, port=port) == "connected"


def test_nothing_of_the_course_can_be_read(boxed: JobPool, unboxed: JobPool, course: Path) -> None:
    files = [path for path in course.rglob("*") if path.is_file()]
    assert len(files) == 4
    for file in files:
        assert tried(boxed, escapes.read, path=f"{file}") == "FileNotFoundError"
        assert tried(unboxed, escapes.read, path=f"{file}") == "private"
        for pool in (boxed, unboxed):
            assert escaped(pool, escapes.read, path=f"{file}") == "PermissionError"


def test_only_what_python_needs_is_there(boxed: JobPool) -> None:
    package = Path(job_pool.__file__).parents[1]
    assert package.name in tried(boxed, escapes.names_in, path=f"{package.parent}").split()
    assert "solutions" not in tried(boxed, escapes.names_in, path=f"{package.parent}")
    assert tried(boxed, escapes.names_in, path=f"{Path.home()}/.ssh") == "FileNotFoundError"
    assert tried(boxed, escapes.names_in, path=SCRATCH) == ""


def test_nothing_can_be_written_but_the_private_folder(boxed: JobPool) -> None:
    package = Path(job_pool.__file__).parents[1]
    places = ["/", "/usr", "/etc", "/dev", "/dev/shm", "/proc", f"{package}", f"{SUPPORT}", SCRATCH]
    # Not even there a file with anything in it: the limit of file size is 0.
    assert tried(boxed, escapes.writes_into, paths=places) == f"folder in {SCRATCH}"
    assert escaped(boxed, escapes.writes_into, paths=places) == ""


def test_what_an_answer_leaves_in_the_private_folder_is_gone_for_the_next(boxed: JobPool) -> None:
    process = boxed._server._process
    assert tried(boxed, escapes.leave_things, folder=SCRATCH) == "left"
    assert tried(boxed, escapes.names_in, path=SCRATCH) == ""
    assert boxed._server._process is not process  # another sandbox


def test_the_package_itself_cannot_fill_the_disk_either(boxed: JobPool) -> None:
    no_space = 28
    assert trusted(boxed, escapes.fill_disk, folder=SCRATCH) == f"64 {no_space}"
    assert tried(boxed, escapes.names_in, path=SCRATCH) == ""


def test_no_right_is_gained(boxed: JobPool) -> None:
    assert tried(boxed, escapes.gain_rights) == ""


def test_the_package_itself_starts_no_end_of_processes_either(
    boxed: JobPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pool, "JOB_MEMORY_BYTES", 2**40)  # each counts for all it has
    assert 0 < int(trusted(boxed, escapes.fork_some, most=200)) < 128
    assert is_well(boxed)


def test_many_processes_have_no_more_memory_than_one(
    boxed: JobPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pool, "JOB_MEMORY_BYTES", 100 * MIB)
    with pytest.raises(JobDied, match="more than 104857600 bytes of memory"):
        trusted(boxed, escapes.fork_some, most=3, take_bytes=50 * MIB)
    assert is_well(boxed)


def test_the_pool_cannot_be_killed(boxed: JobPool) -> None:
    assert is_well(boxed)
    process = boxed._server._process
    assert trusted(boxed, escapes.kill_the_pool) == "killed"
    assert trusted(boxed, escapes.kill_everything) == "nothing to kill"
    assert is_well(boxed)
    assert boxed._server._process is process


def test_there_is_no_way_into_the_pool(boxed: JobPool) -> None:
    assert escaped(boxed, escapes.look_into_the_pool) == ""
    assert tried(boxed, escapes.look_into_the_pool) == ""


# What the pool keeps up by itself.


def test_daemons_end_with_the_job_that_left_them(any_pool: JobPool) -> None:
    numbers = trusted(any_pool, escapes.leave_daemons)
    assert len(numbers.split()) == 3
    assert trusted(any_pool, escapes.alive, numbers=numbers) == ""


def test_no_process_is_started_and_no_thread_by_a_prediction(any_pool: JobPool) -> None:
    assert escaped(any_pool, escapes.fork_some, most=20) == "0"
    program = escapes.as_answer(escapes.fork_some, "program")
    assert any_pool.trial(EXERCISE, PROGRAM, program, {"most": 20}) == {"achieved": "0"}
    if os.getuid() or any_pool._server._command[0] == "bwrap":  # root's threads are not counted
        assert escaped(any_pool, escapes.start_thread) == "can't start new thread"
    assert escaped(any_pool, escapes.run_another_program) == "PermissionError"


def test_a_repaired_program_may_start_threads(any_pool: JobPool) -> None:
    program = escapes.as_answer(escapes.start_thread, "program")
    assert any_pool.trial(EXERCISE, PROGRAM, program, {}) == {"achieved": "started"}


def test_no_signal_reaches_anybody_else(any_pool: JobPool) -> None:
    assert is_well(any_pool)
    process = any_pool._plain[False]._process
    assert escaped(any_pool, escapes.kill_the_pool) == "PermissionError"
    assert is_well(any_pool)
    assert any_pool._plain[False]._process is process


def test_nothing_stays_in_the_kernel(any_pool: JobPool) -> None:
    assert escaped(any_pool, escapes.leave_shared_memory) == "Operation not permitted"


def test_nothing_is_open_but_nothing_and_the_reply(any_pool: JobPool) -> None:
    assert tried(any_pool, escapes.open_files) == "/dev/null /dev/null /dev/null pipe"


def test_no_file_grows(boxed: JobPool, unboxed: JobPool, tmp_path: Path) -> None:
    too_large = 27
    assert tried(boxed, escapes.fill_disk, folder=SCRATCH) == f"0 {too_large}"
    assert tried(unboxed, escapes.fill_disk, folder=f"{tmp_path}") == f"0 {too_large}"


def test_no_memory_beyond_the_limit(any_pool: JobPool) -> None:
    out_of_memory = 12
    assert escaped(any_pool, escapes.take_memory) == f"{out_of_memory}"


def test_a_flood_of_output_is_cut(any_pool: JobPool) -> None:
    assert "a reply of more than 4194304 bytes" in ended(any_pool, escapes.flood)
    told = answered(any_pool, escapes.as_answer(escapes.flood))
    assert told == {"problem": "the answer is a text of 8388608 characters"}
    assert is_well(any_pool)


def test_an_answer_that_ends_its_process_is_told_from_a_wrong_one(any_pool: JobPool) -> None:
    assert ended(any_pool, escapes.exit_at_once) == ("No answer: its process ended with status 0.")
    told = answered(any_pool, escapes.as_answer(escapes.exit_at_once))
    assert told == {"problem": "No answer: its process ended with status 0."}
    assert is_well(any_pool)


def test_an_answer_that_sleeps_is_given_up(
    any_pool: JobPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pool, "WALL_TO_CPU", 0.25)  # of 4 seconds
    monkeypatch.setattr(job_pool, "ANSWER_SECONDS", 1)
    assert "no reply within 1.0 seconds" in ended(any_pool, escapes.wait_long)
    with pytest.raises(JobLate, match="it did not end within 1 seconds"):
        escaped(any_pool, escapes.wait_long)
    with pytest.raises(JobLate, match="it did not end within 1 seconds"):
        escaped(any_pool, escapes.trickle)
    monkeypatch.undo()
    assert is_well(any_pool)


def test_a_pool_that_was_killed_is_started_anew(unboxed: JobPool) -> None:
    for _ in range(2):
        with pytest.raises(JobPoolError, match="the judge's process ended"):
            trusted(unboxed, escapes.kill_the_pool)
        assert is_well(unboxed)


def test_earlier_answers_and_truths_are_not_in_memory(any_pool: JobPool) -> None:
    secret = "".join(reversed("the answer of someone else"))
    source = f"def program():\n    return {secret!r}"
    assert any_pool.trial(EXERCISE, PROGRAM, source, {})["achieved"] == secret
    (measured,) = any_pool.measure(EXERCISE, ANSWER, [{"name": "tell", "text": secret}])
    assert measured["truth"] == secret
    assert tried(any_pool, escapes.find_in_memory, reversed_text=secret[::-1]) == "0"


# Forged replies.

FORGED = {"done": {"outcomes": [{"type": "int", "value": 42, "shown": "42"}]}}


def test_of_a_forged_reply_nothing_is_left_for_the_next(any_pool: JobPool) -> None:
    """It claims an outcome of its own, which any answer may; what it writes besides is lost."""
    assert escaped(any_pool, escapes.forge_into_everything, forged=json.dumps(FORGED)) == "42"
    (outcome,) = any_pool.answers(EXERCISE, ANSWER, "def answer():\n    return 7", [{}])
    assert outcome["value"] == 7


@pytest.mark.parametrize(
    "forged",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"done": {}}',
        '{"done": {"outcomes": []}}',
        '{"done": {"outcomes": {"0": {}}}}',
        '{"done": {"outcomes": [{"type": "int"}]}}',
        '{"done": {"outcomes": [{"type": "int", "value": true, "shown": "1"}]}}',
        '{"done": {"outcomes": [{"type": "int", "value": [42], "shown": "42"}]}}',
        '{"done": {"outcomes": [{"type": "int", "value": 42, "shown": 42}]}}',
        '{"done": {"outcomes": [{"problem": {"a": "b"}}]}}',
        '{"done": {"outcomes": [{"type": "int", "value": %s, "shown": ""}]}}' % ("9" * 5000),
        json.dumps(FORGED) + "\n" + json.dumps(FORGED),
        json.dumps({"ended": "replied", "how": ""}),
        "\\x80",
    ],
)
def test_what_is_no_reply_is_taken_for_none(unboxed: JobPool, forged: str) -> None:
    source = escapes.as_answer(escapes.forge_into_everything)
    outcome = answered(unboxed, source, forged=forged)
    assert outcome["problem"].startswith("No answer: its process ")


def test_text_of_a_forged_reply_is_made_safe_to_show(unboxed: JobPool) -> None:
    problem = "\x1b[2J\ud800" + "x" * 20_000
    forged = json.dumps({"done": {"outcomes": [{"problem": problem}]}})
    source = escapes.as_answer(escapes.forge_into_everything)
    (outcome,) = unboxed.answers(EXERCISE, ANSWER, source, [{"forged": forged}])
    assert outcome["problem"].startswith("\ufffd[2J\ufffdxxx")
    assert len(outcome["problem"]) == 10_000 + len("...")


# What becomes of it all in the end.


@pytest.mark.parametrize("escape", [escapes.exit_at_once, escapes.flood, escapes.wait_long])
def test_a_program_that_breaks_its_process_earns_nothing_and_the_next_is_graded(
    unboxed: JobPool, escape: Escape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pool, "WALL_TO_CPU", 0.25)
    judge = Judge(unboxed)
    verdict = judge.judge(EXERCISE, "program", [escapes.as_answer(escape, "program")])
    assert (verdict.grade, verdict.score) == (Grade.FAILED, 0)
    assert verdict.message.startswith("No answer: ")
    assert judge.judge(EXERCISE, "answer", [RIGHT]).score == 1


@pytest.mark.parametrize("escape", [escapes.exit_at_once, escapes.flood, escapes.wait_long])
def test_of_plain_python_nobody_needs_to_ask_whose_fault_it_was(
    unboxed: JobPool, escape: Escape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pool, "ANSWER_SECONDS", 1)
    judge = Judge(unboxed)
    verdict = judge.judge(EXERCISE, "answer", [escapes.as_answer(escape)])
    assert (verdict.grade, verdict.score) == (Grade.FAILED, 0)
    assert verdict.message
    assert judge.judge(EXERCISE, "answer", [RIGHT]).score == 1


def test_a_wrong_answer_that_claims_to_be_right_is_still_wrong(unboxed: JobPool) -> None:
    """It can claim any value, but what the right one is was measured elsewhere."""
    claim = json.dumps(FORGED).replace("42", "41")
    claiming = escapes.as_answer(escapes.forge_into_everything, "claim")
    source = f"{claiming}\ndef answer():\n    claim({claim!r})\n"
    verdict = Judge(unboxed).judge(EXERCISE, "answer", [source])
    assert (verdict.grade, verdict.score) == (Grade.FAILED, 0)


@pytest.mark.parametrize("choose", [LimitsOnly, around])
def test_a_pool_ends_with_its_judge_in_the_middle_of_a_job(
    choose: Callable[[], Sandbox], course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_in(choose(), course)
    assert tried(pool, escapes.tell, text="well") == "well"
    assert isinstance(pool._server._process, job_pool._Started)
    process = pool._server._process._process
    # As after a kill -9 of the judge: it asks, and then its end of the pipe is closed.
    monkeypatch.setattr(job_pool, "read_frame", lambda descriptor: process.stdin.close())
    monkeypatch.setattr(job_pool._Server, "close", lambda server: None)
    with pytest.raises(JobPoolError, match="the judge's process ended"):
        tried(pool, escapes.wait_long)
    assert process.wait(timeout=10) == 0
    process.stdout.close()
