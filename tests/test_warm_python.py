"""A Python that has imported torch runs programs as one that starts."""

from __future__ import annotations

import os
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
