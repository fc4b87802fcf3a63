"""The bench's process: does each job in a fork of its own, within limits.

    python -P -m vramlab_classroom.judge.job_server

Reads requests on stdin and writes replies on stdout, as messages (`frames.py`); or, where stdin is
a socket that others connect to, is forked for each of them (`warm_benches.py`). A request is an
order (`orders.py`, for this process) and a job (for the fork); a reply is how the job ended
(`{"ended": "replied"}`, `"died"`, `"late"` or `"failed"`, `"how"`, and whether it was the `"last"`
that this server does) and what it replied.

The server never runs a learner's code, so it can serve a whole class: torch is imported once, here,
and every fork has it at once. Nor does it look into a job or a reply, of which it remembers
nothing: a fork has a copy of the server's memory, and must not find another learner's answer there,
nor what was measured. A job ends with everything it has started (`confinement.py`), and when the
judge is gone, so is the server.
"""

from __future__ import annotations

import gc
import importlib
import json
import mmap
import os
import select
import signal
import socket
import stat
import sys
import time
import traceback
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from vramlab_classroom.judge import jobs
from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.sandbox.confinement import (
    clear_temporary_folder,
    confine_bench,
    confine_job,
    end_job,
    is_spoiled,
    memory_of_job,
)
from vramlab_classroom.sandbox.frames import LENGTH, forget, read_frame, write_frame
from vramlab_classroom.sandbox.job_limits import Limits, Order
from vramlab_classroom.sandbox.syscalls import SOCKETS, refuse_system_calls

LOOK_SECONDS = 0.5
"""How often to look how much memory a job has taken, with all its processes."""

_REQUESTS = 0

WARM_MODULES = ("torch._dynamo", "vramlab.gpu", "vramlab_course.tasks.preloaded")
"""What a process has imported of which benches are forked, besides all exercises."""


@dataclass(frozen=True)
class _End:
    """How a job has ended."""

    ended: str
    how: str = ""
    reply: bytearray | memoryview = field(default_factory=bytearray)

    is_last: bool = False
    """The server ends, too: the job has left traces in its sandbox."""


class _JudgeGone(Exception):
    """Nobody waits for the job any more."""


class _GivenUp(Exception):
    """A job is not waited for any longer; the message says why."""


def main() -> None:
    """Serve a judge until it is gone, or fork for each judge that connects until all are gone."""
    if stat.S_ISSOCK(os.fstat(_REQUESTS).st_mode):
        serve_forked(socket.socket(fileno=os.dup(_REQUESTS)))
    else:
        serve(os.dup(1))


def serve_forked(listening: socket.socket) -> None:
    """Serve each judge that connects in a fork, which has imported all that jobs need.

    The first to connect asks for nothing: it is who started this process, and ends it by leaving.
    """
    owner, _ = listening.accept()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks that have ended are waited for by nobody
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listening, owner], [], [])
        if owner in ready:
            return
        _warm_up()
        judge, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(judge.fileno(), _REQUESTS)
            for each in (listening, owner):
                each.close()
            search_path = read_frame(_REQUESTS) or b"[]"
            sys.path[:0] = json.loads(search_path)
            serve(judge.detach())
            os._exit(0)
        judge.close()


@cache
def _warm_up() -> None:
    """Import what takes long: when the first judge comes, since there may be none."""
    for module in WARM_MODULES:
        importlib.import_module(module)
    for exercise in exercise_names():
        find_exercise(exercise)
    gc.freeze()


def serve(replies: int) -> None:
    """Do what is asked for on stdin, until there is nobody any more who asks."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    confine_bench()
    while (order := read_frame(_REQUESTS)) and (job := read_frame(_REQUESTS)) is not None:
        try:
            end = _serve(Order.from_data(order), job)
        except _JudgeGone:
            return
        except Exception:
            end = _End("failed", traceback.format_exc())
        facts = {"ended": end.ended, "how": end.how, "last": end.is_last}
        write_frame(replies, json.dumps(facts).encode())
        write_frame(replies, end.reply)
        if end.is_last:
            return
        forget(job)
        forget(end.reply)


def _serve(order: Order, job: bytearray) -> _End:
    for module in order.preload:
        importlib.import_module(module)
    # A fork's garbage collections go over what the fork has made, not over all of torch.
    gc.freeze()
    end = _run_in_fork(job, order.limits)
    if order.limits.is_trusted:
        clear_temporary_folder()
        return end
    return replace(end, is_last=is_spoiled())


def _run_in_fork(job: bytearray, limits: Limits) -> _End:
    """Do one job in a fork and wait for it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _child(job, writing, limits)
    os.close(writing)
    try:
        reply = _read(reading, limits)
    except _GivenUp as reason:
        return _End("died", f"{reason}")
    finally:
        os.close(reading)
        status = end_job(child)
    if reply is not None:
        return _End("replied", "", reply)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    if number == signal.SIGXCPU:
        return _End("late", f"{limits.cpu_seconds}")
    how = signal.Signals(number).name if number else f"status {os.WEXITSTATUS(status)}"
    return _End("died", how)


def _read(pipe: int, limits: Limits) -> memoryview | None:
    """Read one message; None if the other end closes before its end.

    Not to the end of the file, which processes that the job has left behind may keep open.
    """
    deadline = time.monotonic() + limits.wall_seconds
    # All at once, since a buffer that grows leaves copies behind; from mmap, which takes no time.
    buffer = memoryview(mmap.mmap(-1, LENGTH.size + limits.reply_bytes))
    filled, expected = 0, LENGTH.size
    while filled < expected:
        remaining = max(deadline - time.monotonic(), 0)
        ready, _, _ = select.select([pipe, _REQUESTS], [], [], min(remaining, LOOK_SECONDS))
        if _REQUESTS in ready:
            # The next request comes after this reply; so this is the end of all requests.
            raise _JudgeGone
        if not ready:
            if not remaining:
                raise _GivenUp(f"no reply within {limits.wall_seconds} seconds")
            if memory_of_job() > limits.memory_bytes:
                raise _GivenUp(f"more than {limits.memory_bytes} bytes of memory")
            continue
        count = os.readv(pipe, [buffer[filled:expected]])
        if not count:
            return None
        filled += count
        if filled == LENGTH.size:
            expected += LENGTH.unpack(buffer[: LENGTH.size])[0]
        if expected > len(buffer):
            raise _GivenUp(f"a reply of more than {limits.reply_bytes} bytes")
    return buffer[LENGTH.size : expected]


def _child(job: bytearray, writing: int, limits: Limits) -> None:
    """Do the job, reply, and end the process without running anything else."""
    try:
        confine_job(writing)
        limits.apply()
        if not limits.is_trusted:
            refuse_system_calls(but=SOCKETS if limits.runs_torch else ())
        try:
            reply: dict[str, Any] = {"done": jobs.run(json.loads(job))}
        except BaseException:
            reply = {"failed": traceback.format_exc()}
        write_frame(writing, json.dumps(reply).encode())
    finally:
        os._exit(1)  # the server looks at this only if no reply came


if __name__ == "__main__":
    main()
