"""The bench's process: does each job in a fork of its own, within limits.

    python -P -m vramlab.grading.bench_server

Reads one JSON request per line on stdin and writes one JSON reply per line on stdout. A reply is
`{"done": ...}`, `{"failed": traceback}`, `{"died": how}` or `{"late": seconds}`. The server itself
never runs a learner's code, so it can serve a whole class; torch is imported once, here, and every
fork has it at once.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vramlab.grading import jobs
from vramlab.units import GIB, MIB

MEMORY_BYTES = 4 * GIB
"""What one job may take beyond what the server holds."""

REPLY_BYTES = 64 * MIB
WALL_TO_CPU = 4
"""A job may take so much longer than its CPU time before it is given up: machines are shared."""


def main() -> None:
    """Serve until stdin ends."""
    replies = os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("r+b") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            for module in request["preload"]:
                importlib.import_module(module)
            reply = run_in_fork(request, cpu_seconds=request["cpu_seconds"])
        except Exception:
            reply = {"failed": traceback.format_exc()}
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()


def run_in_fork(request: Mapping[str, Any], *, cpu_seconds: int) -> dict[str, Any]:
    """Do one job in a fork and wait for it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(request, writing, cpu_seconds)
    os.close(writing)
    try:
        payload = _read(reading, time.monotonic() + cpu_seconds * WALL_TO_CPU)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if payload:
        reply: dict[str, Any] = json.loads(payload)
        return reply
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    if payload is None:
        return {"died": f"no reply within {cpu_seconds * WALL_TO_CPU} seconds"}
    if number == signal.SIGXCPU:
        return {"late": cpu_seconds}
    how = signal.Signals(number).name if number else f"status {os.WEXITSTATUS(status)}"
    return {"died": how}


def _read(pipe: int, deadline: float) -> bytes | None:
    """Read until the other end closes; None when that takes past the deadline."""
    payload = bytearray()
    while len(payload) <= REPLY_BYTES:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not select.select([pipe], [], [], remaining)[0]:
            return None
        chunk = os.read(pipe, MIB)
        if not chunk:
            return bytes(payload)
        payload += chunk
    return b""


def _child(request: Mapping[str, Any], writing: int, cpu_seconds: int) -> None:
    """Do the job, reply, and end the process without running anything else."""
    try:
        _limit(cpu_seconds, may_write_files=request["job"] == "measure")
        try:
            reply: dict[str, Any] = {"done": jobs.run(request)}
        except BaseException:
            reply = {"failed": traceback.format_exc()}
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(reply).encode())
    finally:
        os._exit(1)


def _limit(cpu_seconds: int, *, may_write_files: bool) -> None:
    # One second between the limits: SIGXCPU, by which the cause is known, comes before SIGKILL.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    if not may_write_files:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    held = Path("/proc/self/statm")
    if held.exists():  # macOS has no such file, and does not keep this limit
        pages = int(held.read_text().split()[0])
        allowed = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))


if __name__ == "__main__":
    main()
