"""Serves a judge: runs each job in a separate fork, within limits, until stdin is closed.

Reads requests on stdin, as messages (`frames.py`). A request is an order (`job_limits.py`, for the
server) and a job (for the fork); a reply is how the job ended (`{"ended": "replied"}`, `"died"`,
`"late"` or `"failed"`, `"how"`, and whether it was the `"last"` that this server does) and what it
replied.

A server never runs a learner's code, so it can serve a whole class: what jobs need is imported
once, here, and every fork has it at once. Nor does it look into a job or a reply, of which it
remembers nothing: a fork has a copy of the server's memory, and must not find another learner's
answer there, nor what was measured. A job ends with everything it has started (`confinement.py`),
and when the judge is gone, so is the server.

Windows has no forks. A server there does jobs itself, and ends after the first that is not trusted:
that is enough for a learner's own check, and no wall.
"""

from __future__ import annotations

import gc
import importlib
import json
import mmap
import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from vramlab_classroom.sandbox.confinement import (
    clear_temporary_folder,
    confine_job,
    confine_pool,
    end_job,
    is_spoiled,
    memory_of_job,
)
from vramlab_classroom.sandbox.frames import LENGTH, forget, read_frame, write_frame
from vramlab_classroom.sandbox.job_limits import HAS_LIMITS, JobSpec, Limits
from vramlab_classroom.sandbox.syscalls import FILES, FORKS, SOCKETS, refuse_system_calls

LOOK_SECONDS = 0.5
"""How often to look how much memory a job has taken, with all its processes."""

_REQUESTS = 0

_CAN_FORK = HAS_LIMITS and hasattr(os, "fork")

Run = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Does a job; every value in the reply can be written as JSON."""


@dataclass(frozen=True)
class _End:
    """How a job has ended."""

    ended: str
    how: str = ""
    reply: bytearray | memoryview = field(default_factory=bytearray)

    is_last: bool = False
    """The server ends, too: the job has left traces in its sandbox."""


class _JudgeGone(Exception):
    """The judge no longer waits for the job."""


class _GivenUp(Exception):
    """A job is not waited for any longer; the message says why."""


class _TooLate(Exception):
    """A job that should compute has taken too long, whatever it did meanwhile."""


def _nothing(asked: Mapping[str, Any]) -> None:
    """Prepare nothing."""


def serve(replies: int, run: Run, prepare: Callable[[Mapping[str, Any]], None] = _nothing) -> None:
    """Serve requests from stdin until it is closed.

    Args:
        replies: the open file for replies.
        run: does each job, in its fork.
        prepare: does what an order asks to be done before the fork.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    confine_pool()
    gc.disable()  # what a server imports is no garbage, and looking for some takes long
    while (order := read_frame(_REQUESTS)) and (job := read_frame(_REQUESTS)) is not None:
        try:
            end = _serve(JobSpec.from_data(order), job, run, prepare, replies)
        except _JudgeGone:
            return
        except Exception:
            end = _End("failed", traceback.format_exc())
        _reply(replies, end)
        if end.is_last:
            return
        forget(job)
        forget(end.reply)


def _reply(replies: int, end: _End) -> None:
    facts = {"ended": end.ended, "how": end.how, "last": end.is_last}
    write_frame(replies, json.dumps(facts).encode())
    write_frame(replies, end.reply)


def _serve(
    order: JobSpec,
    job: bytearray,
    run: Run,
    prepare: Callable[[Mapping[str, Any]], None],
    replies: int,
) -> _End:
    for module in order.preload:
        with suppress(*([ImportError] if order.limits.is_plain else [])):
            importlib.import_module(module)
    if order.prepare is not None:
        prepare(order.prepare)
    if not _CAN_FORK:
        return _run_here(job, order.limits, run, replies)
    # A fork's garbage collections go over what the fork has made, not over all of torch.
    gc.freeze()
    end = _run_in_fork(job, order.limits, run)
    if order.limits.is_trusted:
        clear_temporary_folder()
        return end
    return replace(end, is_last=is_spoiled())


def _run_here(job: bytearray, limits: Limits, run: Run, replies: int) -> _End:
    """Do one job in this process; if it takes too long, say so and end the process."""
    ends = threading.Lock()

    def give_up() -> None:
        if ends.acquire(blocking=False):
            _reply(replies, _End("late", f"{limits.wall_seconds} seconds", is_last=True))
            os._exit(1)

    timer = threading.Timer(limits.wall_seconds, give_up)
    timer.daemon = True
    timer.start()
    gc.enable()
    reply = _done(job, run)
    if not ends.acquire(blocking=False):
        time.sleep(limits.wall_seconds)  # the process is ending
    timer.cancel()
    return _End("replied", "", bytearray(reply), is_last=not limits.is_trusted)


def _done(job: bytearray, run: Run) -> bytes:
    try:
        reply: dict[str, Any] = {"done": run(json.loads(job))}
    except BaseException:
        reply = {"failed": traceback.format_exc()}
    return json.dumps(reply).encode()


def _run_in_fork(job: bytearray, limits: Limits, run: Run) -> _End:
    """Do one job in a fork and wait for it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _child(job, writing, limits, run)
    os.close(writing)
    try:
        reply = _read(reading, limits)
    except _TooLate:
        return _End("late", f"{limits.wall_seconds} seconds")
    except _GivenUp as reason:
        return _End("died", f"{reason}")
    finally:
        os.close(reading)
        status = end_job(child)
    if reply is not None:
        return _End("replied", "", reply)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    if number == signal.SIGXCPU:
        computing = "" if limits.is_plain else " of computing"
        return _End("late", f"{limits.cpu_seconds} seconds{computing}")
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
        if not remaining:  # also of a reply that comes byte by byte
            if limits.is_plain:
                raise _TooLate
            raise _GivenUp(f"no reply within {limits.wall_seconds} seconds")
        ready, _, _ = select.select([pipe, _REQUESTS], [], [], min(remaining, LOOK_SECONDS))
        if _REQUESTS in ready:
            # The next request comes after this reply; so this is the end of all requests.
            raise _JudgeGone
        if not ready:
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


def _child(job: bytearray, writing: int, limits: Limits, run: Run) -> None:
    """Do the job, reply, and end the process without running anything else."""
    try:
        gc.enable()
        confine_job(writing)
        limits.apply()
        if not (limits.is_trusted or limits.is_plain):
            torchs = (*FILES, *SOCKETS) if limits.runs_torch else FILES
            refuse_system_calls(but=(*torchs, *FORKS) if limits.starts_ranks else torchs)
        write_frame(writing, _done(job, run))
    finally:
        os._exit(1)  # the server looks at this only if no reply came
