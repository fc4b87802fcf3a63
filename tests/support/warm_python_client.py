"""Runs a program in a fork of another Python: what `warm_python.started` gives as Python.

    python -IS warm_python_client.py ADDRESS EXECUTABLE PYTHON ARGUMENTS...

Its open files are the program's, signals are passed on, and it ends as the program does.
"""

import array
import json
import os
import signal
import socket
import sys

PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
OF_THE_INTERPRETER = (
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONWARNINGS",
    "PYTHONOPTIMIZE",
    "PYTHONFAULTHANDLER",
)
"""Environment variables that are read when Python starts."""

OF_IMPORTS = ("DASK_",)
"""The beginnings of the names of those that are read when modules are imported."""


OPTIONS = ("-u", "-B")
"""Of the interpreter, that a fork can have; `multiprocessing` passes the second one on."""


def can_be_a_fork(arguments):
    """Return whether a fork of a running Python does the same as a new one."""
    rest = arguments
    while rest[:1] and rest[0] in OPTIONS:
        rest = rest[1:]
    asked = rest[:1] not in ([], ["-"]) and (rest[0] in ("-m", "-c") or not rest[0].startswith("-"))
    return (
        asked
        and not any(os.environ.get(name) for name in OF_THE_INTERPRETER)
        and not any(name.startswith(OF_IMPORTS) for name in os.environ)
    )


def open_files():
    """Give the numbers of the files that this process was given."""
    numbers = []
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
        except OSError:
            continue  # the folder's own
        numbers.append(int(name))
    return sorted(numbers)


def main():
    """Ask for the program, and wait for it."""
    address, executable, python, *arguments = sys.argv[1:]
    files = open_files()
    server = socket.socket(socket.AF_UNIX)
    try:
        if not can_be_a_fork(arguments):
            raise OSError
        server.connect(address)
    except OSError:
        server.close()
        os.execv(python, [python, *arguments])
    for name in PASSED_ON:
        number = getattr(signal, name)
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, frame: server.send(bytes([number])))
    request = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "cores": sorted(os.sched_getaffinity(0)),
        "executable": executable,
        "files": files,
    }
    data = json.dumps(request).encode() + b"\0"
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
    server.sendall(data[server.sendmsg([data], rights) :])
    told = b""
    while not told.endswith(b"\0"):
        received = server.recv(64)
        if not received:
            sys.exit("the warm Python has ended before its program")
        told += received
    status = json.loads(told[:-1])
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


main()
