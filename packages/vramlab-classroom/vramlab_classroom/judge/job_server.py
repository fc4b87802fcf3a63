"""The process that measures, tries repairs, and reads what was submitted.

    python -P -m vramlab_classroom.judge.job_server

Serves the judge that writes to its stdin (`sandbox/serving.py`); or, where stdin is a socket that
judges connect to, is forked for each of them (`warm_job_server.py`).
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import stat
import sys
from functools import cache

from vramlab.garbage import lasting_imports
from vramlab_classroom.judge import jobs
from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.sandbox.frames import read_frame
from vramlab_classroom.sandbox.serving import serve

_REQUESTS = 0

WARM_MODULES = ("torch._dynamo", "vramlab.gpu", "vramlab_course.tasks.preloaded")
"""What a process has imported of which pools are forked, besides all exercises."""


def main() -> None:
    """Serve a judge until it is gone, or fork for each judge that connects until all are gone."""
    if stat.S_ISSOCK(os.fstat(_REQUESTS).st_mode):
        serve_forked(socket.socket(fileno=os.dup(_REQUESTS)))
    else:
        serve(os.dup(1), jobs.run, jobs.prepare)


def serve_forked(listening: socket.socket) -> None:
    """Serve each judge that connects in a fork, which has imported all that jobs need.

    The first to connect asks for nothing: it is who started this process, and ends it by leaving.
    """
    owner, _ = listening.accept()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps forks that have ended
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
            serve(judge.detach(), jobs.run, jobs.prepare)
            os._exit(0)
        judge.close()


@cache
def _warm_up() -> None:
    """Import what takes long: when the first judge comes, since there may be none."""
    with lasting_imports():
        for module in WARM_MODULES:
            importlib.import_module(module)
        for exercise in exercise_names():
            find_exercise(exercise)


if __name__ == "__main__":
    main()
