"""`nbgrader autograde`, and so the formgrader's button, judges in the sandbox of `vramlab grade`.

What stops answers besides is broken on purpose, the filter of system calls and, as in
`test_escapes.py`, the language of repairs: what an answer tries then is stopped by the sandbox that
autograder/nbgrader_config.py chooses, and by nothing else.
"""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import escapes
import pytest
from classroom import Classroom, with_cells

from vramlab_classroom.sandbox import bubblewrap
from vramlab_classroom.sandbox.bubblewrap import Bubblewrap, LimitsOnly, SandboxError, best_command

EXERCISE = "02_pages_and_blocks"

WITHOUT_WALLS = """
import sys
from vramlab_classroom.judge import job_server, jobs
from vramlab_classroom.sandbox import plain_answers
from vramlab_classroom.judge.vocabulary import OWN_MODULE

def run_anything(source, vocabulary):
    namespace = {}
    exec(compile(source, OWN_MODULE, "exec"), namespace)
    return namespace

jobs.load = run_anything
plain_answers.refuse_system_calls = lambda but: None
(plain_answers if sys.argv[-1].endswith("plain_answers") else job_server).main()
"""


def first_bytes(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(15).decode()
    except OSError as error:
        return type(error).__name__


def predicts(task: str, escape: Callable[..., str], **arguments: object) -> str:
    """Write an answer that gives what came of an escape, which the verdict then shows."""
    call = f"{escape.__name__}(**{arguments!r})"
    return f"{inspect.getsource(escape)}\ndef {task}(**case):\n    return {call}\n"


def repairs(task: str, escape: Callable[..., str], **arguments: object) -> str:
    call = f"{escape.__name__}(**{arguments!r})"
    source = inspect.getsource(escape)
    return f"{source}\ndef {task}(*case, **more):\n    raise RuntimeError({call})\n"


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server


def attacked(folder: Path, listener: socket.socket, *, boxed: bool) -> Classroom:
    """Let nbgrader grade an answer that has broken out of the language."""
    classroom = Classroom(folder, EXERCISE, has_sandbox=True)
    command, warning = classroom.config.JudgeTasks.pool_command()
    if not boxed:
        command = LimitsOnly().prefix()
    classroom.config.JudgeTasks.pool_command = lambda: (
        [*command, "-c", WITHOUT_WALLS],
        warning,
    )
    autograder = folder / "autograder"
    notebook = f"{EXERCISE}/{EXERCISE}.ipynb"
    port = listener.getsockname()[1]
    answers = [
        predicts("block_bytes", first_bytes, path=f"{autograder / 'gradebook.db'}"),
        predicts("segment_bytes", escapes.read, path=f"{autograder / 'hidden_seed.txt'}"),
        predicts("reserved_bytes", first_bytes, path=f"{folder / 'solutions' / notebook}"),
        predicts("releasable_bytes", escapes.writes_into, paths=[f"{autograder / 'submitted'}"]),
        repairs("row_norms", escapes.connect, port=port),
    ]
    tasks = [answer.rpartition("\ndef ")[2].partition("(")[0] for answer in answers]
    attack = with_cells(classroom.solution, dict(zip(tasks, answers, strict=True)))
    classroom.submit("attacker", attack)
    classroom.submit("honest", classroom.solution)
    assert classroom.autograde()
    return classroom


def findings(classroom: Classroom) -> dict[str, str]:
    """Give the line of each verdict that says what the answer found."""
    return {
        task: next(
            line
            for line in classroom.verdict("attacker", task).splitlines()[1:]
            if "gave" in line or "Error" in line
        )
        for task in classroom.scores()["attacker"]
    }


def test_what_gets_out_of_the_language_meets_the_sandbox(
    tmp_path: Path, listener: socket.socket
) -> None:
    try:
        Bubblewrap().try_out()
    except SandboxError as error:
        pytest.skip(f"{error}")
    classroom = attacked(tmp_path, listener, boxed=True)
    assert findings(classroom) == {
        "block_bytes": "block_bytes gave 'FileNotFoundError' (str); it should be an int.",
        "segment_bytes": "segment_bytes gave 'FileNotFoundError' (str); it should be an int.",
        "reserved_bytes": "reserved_bytes gave 'FileNotFoundError' (str); it should be an int.",
        "releasable_bytes": "releasable_bytes gave '' (str); it should be an int.",
        "row_norms": 'RuntimeError: "ConnectionRefusedError"',
    }
    with pytest.raises(BlockingIOError):
        listener.accept()
    assert set(classroom.scores()["attacker"].values()) == {0}
    assert sum(score or 0 for score in classroom.scores()["honest"].values()) == 16


def test_the_same_without_a_sandbox_would_get_at_everything(
    tmp_path: Path, listener: socket.socket
) -> None:
    """The attacks above are ones that work where nothing stops them."""
    found = findings(attacked(tmp_path, listener, boxed=False))
    assert found["block_bytes"].startswith("block_bytes gave 'SQLite format 3'")
    assert found["segment_bytes"].startswith("segment_bytes gave 'the seed of the tests'")
    assert "cells" in found["reserved_bytes"]
    assert (tmp_path / "autograder" / "submitted" / "left").is_dir()
    assert found["row_norms"] == 'RuntimeError: "connected"'
    listener.accept()[0].close()


def test_without_a_sandbox_there_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Bubblewrap) -> None:
        raise SandboxError("there is no bwrap")

    monkeypatch.setattr(bubblewrap.Bubblewrap, "try_out", refuse)
    best_command.cache_clear()
    try:
        command, warning = best_command(Path("/course"))
    finally:
        best_command.cache_clear()
    assert command == LimitsOnly().prefix()
    assert warning.startswith("Answers are judged without a sandbox.")
    assert "there is no bwrap" in warning
