"""Pythons that have imported much already, for tests whose programs are not about starting.

Importing torch, or nbgrader, is most of what a small program takes. Here one process has done it;
programs run in forks of it, with the arguments, environment, folder and open files that they would
have in a process of their own. Where torchrun finds this Python in PYTHON_EXEC, ranks are such
forks as well, and so are the processes that programs start by `multiprocessing`.

What cannot be had of a fork, such as options of the interpreter, gets a Python of its own.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import multiprocessing.spawn
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, TracebackType
from typing import Any, NoReturn

TORCH = (
    *("torch", "torch._dynamo", "torch.distributed.run", "torch.distributed.tensor.parallel"),
    *("torch.distributed.fsdp", "torch.distributed.pipelining", "torch.utils.data"),
    *("vramlab.gpu", "vramlab.cli"),
)
"""What is imported before programs are: nothing that a program would notice, but for the time."""

CLASSROOM = (
    *("nbgrader.apps.nbgraderapp", "distributed", "pytest", "vramlab.cli"),
    *("vramlab_classroom.nbgrader.nbgrader_steps", "vramlab_classroom.nbgrader.feedback_pages"),
    *("vramlab_classroom.run.gradebook_writer", "vramlab_classroom.run.worker"),
)
"""The same for those who grade: no torch, which is imported by the processes that judge."""

IMPORTED_ANEW = (
    "torch.distributed.run",  # Python runs no module as a program that is there already
    "dask.system",  # counts the cores that a process may use
)
"""Of these, what programs import themselves."""

COMMANDS = ("nbgrader", "vramlab")
"""What lies beside the executable, and is beside Python where they are installed."""

CLIENT = Path(__file__).with_name("warm_python_client.py")
VARIABLE = "VRAMLAB_WARM_PYTHON"
"""Environment variable with the path of the executable that has torch."""

CLASSROOM_VARIABLE = "VRAMLAB_WARM_CLASSROOM"
"""Environment variable with the path of the executable that has nbgrader."""

_OF_A_USER = ("PYTHONPATH", "PYTHONUNBUFFERED", "DASK_", "JUPYTER_", "XDG_")
"""Variables, by the beginnings of their names, that modules are imported without."""

_EXECUTABLE = """\
#!{python} -IS
import sys
sys.argv[:1] = {words!r}
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"))
"""

_REQUEST_BYTES = 2**20
_MOST_FILES = 253
"""That Linux sends with one message (SCM_MAX_FD)."""


def warm_python() -> str:
    """Give the Python that tests start programs with: one that has torch, where there is one."""
    return os.environ.get(VARIABLE, sys.executable)


def warm_classroom() -> str:
    """Give the Python that tests start what grades with: one that has nbgrader, if there is one."""
    return os.environ.get(CLASSROOM_VARIABLE, sys.executable)


@contextlib.contextmanager
def warm_children(python: str) -> Iterator[None]:
    """Let `multiprocessing` start processes of this one with a Python, where it forks none."""
    before = multiprocessing.spawn.get_executable()
    multiprocessing.set_executable(python)
    try:
        yield
    finally:
        multiprocessing.set_executable(before)


@contextlib.contextmanager
def started(modules: Sequence[str] = TORCH) -> Iterator[Path]:
    """Start the process, and give the path of the executable; it imports when it is first used.

    Args:
        modules: what it imports.
    """
    with TemporaryDirectory(prefix="vramlab-") as folder:
        executable = Path(folder, "python")
        address = f"{folder}/programs"
        words = [f"{CLIENT}", address, f"{executable}", sys.executable]
        _write_executable(executable, words)
        for name in COMMANDS:
            _write_executable(
                Path(folder, name), [*words, f"{Path(sys.executable).with_name(name)}"]
            )
        home = Path(folder, "home")
        home.mkdir()
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(_OF_A_USER)
        }
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen()
            process = subprocess.Popen(
                [sys.executable, __file__, *modules],
                stdin=listening.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={**environment, "HOME": f"{home}"},
            )
        try:
            yield executable
        finally:
            process.terminate()
            process.wait()


def _write_executable(path: Path, words: list[str]) -> None:
    path.write_text(_EXECUTABLE.format(python=sys.executable, words=words))
    path.chmod(0o700)


def serve(listening: socket.socket, modules: Sequence[str]) -> Mapping[str, Any]:
    """Serve programs until this process is stopped; in each program's process, return its names.

    Args:
        listening: where the executable connects.
        modules: what is imported before.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warm = False
    while True:
        client, _ = listening.accept()
        if not warm:
            for module in modules:
                importlib.import_module(module)
            for module in IMPORTED_ANEW:
                sys.modules.pop(module, None)
            gc.collect()
            gc.freeze()
            signal.signal(signal.SIGCHLD, _take_note)
            warm = True
        if os.fork() == 0:
            listening.close()
            return _one_program(client)
        client.close()


def _take_note(number: int, frame: object) -> None:
    """Wait for those that wait for programs, so that their time counts as this process's."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _one_program(client: socket.socket) -> Mapping[str, Any]:
    """Fork the program, and wait for its end, or for that of its client."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    files = array.array("i")
    data, ancillary, _, _ = client.recvmsg(
        _REQUEST_BYTES, socket.CMSG_SPACE(_MOST_FILES * files.itemsize)
    )
    for _, _, sent in ancillary:
        files.frombytes(sent[: len(sent) - len(sent) % files.itemsize])
    while not data.endswith(b"\0"):
        data += client.recv(_REQUEST_BYTES)
    request: dict[str, Any] = json.loads(data[:-1])
    program = os.fork()
    if program == 0:
        client.close()
        _take(files, request["files"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return request
    for file in files:
        os.close(file)
    os._exit(_wait(program, client))


def _take(files: array.array[int], numbers: list[int]) -> None:
    """Give open files the numbers that they have in the client."""
    beyond = max(*numbers, *files, 2) + 1
    moved = [os.dup2(file, beyond + place) for place, file in enumerate(files)]
    for file in {*range(3), *files}:
        with contextlib.suppress(OSError):
            os.close(file)
    for file, number in zip(moved, numbers, strict=True):
        os.dup2(file, number, inheritable=True)
        os.close(file)


def _wait(program: int, client: socket.socket) -> int:
    """Pass signals on until the program ends, and return how; end it if the client has gone."""
    ended = os.pidfd_open(program)
    while True:
        ready, _, _ = select.select([client, ended], [], [])
        if ended in ready:
            break
        number = client.recv(1)
        signal.pidfd_send_signal(ended, number[0] if number else signal.SIGKILL)
        if not number:
            os.waitpid(program, 0)
            return 0
    _, status = os.waitpid(program, 0)
    with contextlib.suppress(OSError):
        client.sendall(json.dumps(os.waitstatus_to_exitcode(status)).encode() + b"\0")
    return 0


def run_to_the_end(request: Mapping[str, Any], search_path: list[str]) -> NoReturn:
    """Run the program that is asked for, and end as Python does, but without taking itself apart.

    A fork would copy all that torch has made for that, which takes longer than most programs.
    """
    status: object = None
    try:
        _become(request, search_path)
    except SystemExit as asked:
        status = asked.code
    except BaseException as error:
        error.__traceback__ = _in_program(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1 if isinstance(error, Exception) else -signal.SIGINT
    if not isinstance(status, int | None):
        print(status, file=sys.stderr)
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or replaced
            stream.flush()
    if isinstance(status, int) and status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status or 0)


def _in_program(traceback: TracebackType | None) -> TracebackType | None:
    """Leave out of a traceback the lines of this file, which no other Python has."""
    here = _in_program.__code__.co_filename
    while traceback is not None and traceback.tb_frame.f_code.co_filename == here:
        traceback = traceback.tb_next
    return traceback


def _become(request: Mapping[str, Any], search_path: list[str]) -> None:
    """Be the program that is asked for, as if Python had just started.

    Args:
        request: with the `arguments` that Python was given, the `environment`, the `folder` and
            the `cores`, and the path of the `executable` that was called.
        search_path: of a Python that has started, without the program's own folder.
    """
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.sched_setaffinity(0, request["cores"])
    multiprocessing.set_executable(request["executable"])
    arguments: list[str] = request["arguments"]
    further = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
    search_path = [*filter(None, further), *search_path]
    unbuffered = bool(request["environment"].get("PYTHONUNBUFFERED"))
    while arguments[0] in ("-u", "-B"):
        unbuffered |= arguments[0] == "-u"
        sys.dont_write_bytecode |= arguments[0] == "-B"
        arguments = arguments[1:]
    with contextlib.suppress(OSError):
        sys.stdin = sys.__stdin__ = os.fdopen(0, buffering=-1, closefd=False)
    # The same objects: what was imported may have kept them, as nbgrader's validator does.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            in_lines = unbuffered or stream is sys.stderr or stream.isatty()
            stream.reconfigure(line_buffering=in_lines, write_through=unbuffered)
    main = sys.modules["__main__"] = ModuleType("__main__")
    if arguments[0] == "-m":
        sys.argv = ["-m", *arguments[2:]]
        sys.path[:] = [os.getcwd(), *search_path]
        runpy._run_module_as_main(arguments[1])
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path[:] = ["", *search_path]
        exec(compile(arguments[1], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = arguments
        sys.path[:] = [os.path.dirname(os.path.abspath(arguments[0])), *search_path]
        main.__file__ = os.path.abspath(arguments[0])
        source = Path(main.__file__).read_bytes()
        exec(compile(source, main.__file__, "exec"), main.__dict__)


if __name__ == "__main__":
    SEARCH_PATH = sys.path[1:]
    ASKED = serve(socket.socket(fileno=os.dup(0)), sys.argv[1:])
    run_to_the_end(ASKED, SEARCH_PATH)
