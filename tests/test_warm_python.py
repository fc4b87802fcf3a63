"""A Python that has imported torch, or nbgrader, runs programs as one that starts."""

from __future__ import annotations

import multiprocessing.spawn
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import warm_python

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="it sends open files by Linux's way"
)


@pytest.fixture(scope="module")
def warm() -> Iterator[str]:
    with warm_python.started() as python:
        yield f"{python}"


@pytest.fixture(scope="module")
def classroom() -> Iterator[str]:
    with warm_python.started(warm_python.CLASSROOM) as python:
        yield f"{python}"


def run(python: str, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, *words], capture_output=True, text=True, **options)


PROGRAMS = {
    "words": (["-c", "import sys; print(sys.argv, sys.path[0], __name__)", "-u", "b"], ""),
    "stdin": (["-c", "import sys; print(sys.stdin.read())"], "said"),
    "a module": (["-m", "json.tool", "--compact"], '{"a": 1}'),
    "a module that is missing": (["-m", "nobody.wrote"], ""),
    "a script": (["script.py", "word"], ""),
    "an error": (["script.py", "fails"], ""),
    "status": (["-c", "import sys; sys.exit(3)"], ""),
    "last words": (["-c", "import sys; sys.exit('words')"], ""),
    "left": (["-c", "import os; os._exit(4)"], ""),
    "killed": (["-c", "import os; os.kill(os.getpid(), 9)"], ""),
    "at the end": (["-c", "import atexit; atexit.register(print, 'end'); print(1)"], ""),
    "interrupted": (["-c", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"], ""),
    "no bytecode": (["-B", "-u", "-c", "import sys; print(sys.dont_write_bytecode)"], ""),
    "not buffered": (["-u", "-c", "import os; print(1); os._exit(0)"], ""),
    "options": (["-X", "utf8=1", "-c", "import sys; print(sys.flags.utf8_mode)"], ""),
    "stdin alone": (["-"], "print(6 * 7)"),
}

SCRIPT = """\
import os, sys
print(__name__, __file__, sys.argv, sys.path[0], os.getcwd(), sys.modules["__main__"].__file__)
def work():
    raise ValueError(sys.argv)
if sys.argv[1] == "fails":
    work()
"""


@pytest.mark.parametrize(("words", "said"), PROGRAMS.values(), ids=PROGRAMS)
def test_programs_are_as_in_a_python_of_their_own(
    words: list[str], said: str, warm: str, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    own, forked = (
        run(python, *words, input=said, cwd=tmp_path) for python in (sys.executable, warm)
    )
    assert (forked.returncode, forked.stdout) == (own.returncode, own.stdout)
    assert forked.stderr.replace(warm, sys.executable) == own.stderr


def test_torch_is_there_already(warm: str) -> None:
    ask = "import sys; print('torch' in sys.modules, 'torch.distributed.run' in sys.modules)"
    assert run(warm, "-c", ask).stdout == "True False\n"


def test_nbgrader_is_there_already_and_has_no_threads(classroom: str) -> None:
    ask = (
        "import os, sys; print([name in sys.modules for name in ('nbgrader', 'dask.system', "
        "'torch')], len(os.listdir('/proc/self/task')))"
    )
    assert run(classroom, "-c", ask).stdout == "[True, False, False] 1\n"


@pytest.mark.parametrize("words", [["vramlab", "scores"], ["nbgrader", "list"], ["vramlab", "no"]])
def test_commands_are_as_those_that_are_installed(
    words: list[str], classroom: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "HOME": f"{tmp_path}"}
    ran = [
        run(f"{Path(python).with_name(words[0])}", *words[1:], cwd=tmp_path, env=environment)
        for python in (sys.executable, classroom)
    ]
    own, forked = ([done.returncode, done.stdout, _undated(done.stderr)] for done in ran)
    assert forked == own


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_was_imported_has_the_programs_stdout(classroom: str, unbuffered: str) -> None:
    # nbgrader's validator keeps the stdout that there is when it is imported.
    say = "from nbgrader.validator import Validator; print(1); print(2, file=Validator.stream)"
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    assert run(classroom, "-c", say, env=environment).stdout == "1\n2\n"


def _undated(complaint: str) -> str:
    """Leave out at what time nbgrader said something."""
    return re.sub(r"\d+-\d+-\d+ [\d:.]+", "", complaint)


def test_what_is_read_of_the_environment_and_the_home_is_the_programs(
    classroom: str, tmp_path: Path
) -> None:
    ask = (
        "import os; from nbgrader.apps import NbGrader; from dask import config\n"
        "from jupyter_core.paths import jupyter_path; print(NbGrader().config_file_paths,"
        "jupyter_path(), os.path.expanduser('~'), config.get('mine', None))"
    )
    environment = {"HOME": f"{tmp_path}", "JUPYTER_CONFIG_DIR": "/nowhere", "DASK_MINE": "3"}
    for without in ((), ("DASK_MINE",)):
        kept = {name: value for name, value in environment.items() if name not in without}
        own, forked = (
            run(python, "-c", ask, cwd=tmp_path, env=kept) for python in (sys.executable, classroom)
        )
        assert "/nowhere" in own.stdout
        assert (forked.stdout, forked.stderr) == (own.stdout, own.stderr)


def test_the_cores_are_those_of_who_asks(classroom: str) -> None:
    one = sorted(os.sched_getaffinity(0))[-1:]
    ask = "import dask.system, os; print(dask.system.CPU_COUNT, sorted(os.sched_getaffinity(0)))"
    forked = run(classroom, "-c", ask, preexec_fn=lambda: os.sched_setaffinity(0, one))
    assert forked.stdout == f"1 {one}\n"


SPAWNS = """\
import multiprocessing, sys
def work(queue):
    queue.put(("nbgrader" in sys.modules, multiprocessing.parent_process() is not None))
    sys.exit(5)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get())
    process.join()
    print(process.exitcode)
"""


def test_processes_of_a_program_are_forks_as_well(classroom: str, tmp_path: Path) -> None:
    (tmp_path / "spawns.py").write_text(SPAWNS)
    ran = run(classroom, "spawns.py", cwd=tmp_path)
    assert (ran.stdout, ran.stderr) == ("(True, True)\n5\n", "")


def test_processes_that_this_one_starts_can_be_forks(classroom: str) -> None:
    before = multiprocessing.spawn.get_executable()
    with warm_python.warm_children(classroom):
        process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(100,))
        process.start()
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert multiprocessing.spawn.get_executable() == before


def test_what_programs_take_counts_as_the_servers(tmp_path: Path) -> None:
    spend = "import time\nwhile time.process_time() < 1: pass"
    before = _children_s()
    with warm_python.started(("json",)) as python:
        run(f"{python}", "-c", spend)
        run(f"{python}", "-c", "pass")
    assert _children_s() - before > 0.9


def _children_s() -> float:
    """Tell the seconds of processors that ended children have taken."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def test_environment_and_search_path(warm: str, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp_path}", "ONE": "1"}
    (tmp_path / "one.py").write_text("import os\nprint(os.environ['ONE'], len(os.environ))\n")
    ran = [run(each, "-c", "import one", env=environment) for each in (sys.executable, warm)]
    assert ran[0].stdout.startswith("1 ")
    assert ran[0].stdout == ran[1].stdout


def test_open_files_keep_their_numbers(warm: str) -> None:
    reading, writing = os.pipe()
    run(warm, "-c", f"import os; os.write({writing}, b'through')", pass_fds=[writing])
    os.close(writing)
    assert os.read(reading, 100) == b"through"
    os.close(reading)


WAITS = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_signals_end_the_program(number: signal.Signals, warm: str) -> None:
    with subprocess.Popen(
        [warm, "-c", WAITS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as started:
        assert started.stdout is not None
        program = int(started.stdout.readline())
        started.send_signal(number)
        assert started.wait(60) == -number
        assert started.stdout.read() == ""  # its other end is closed: the program has ended, too
    deadline = time.monotonic() + 60
    while Path("/proc", f"{program}").exists():  # who waits for it has not seen it yet
        assert time.monotonic() < deadline
        time.sleep(0.01)
