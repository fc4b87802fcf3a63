"""Programs run as python runs them: what they see, how they end, what is printed."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.errors import OutOfDeviceMemory
from vramlab.report.running.program import Program, as_python_shows

TELL = """
import json, os, sys
print(json.dumps({
    "argv": sys.argv, "first": os.path.abspath(sys.path[0]), "name": __name__,
    "file": os.path.abspath(__file__), "main": sys.modules["__main__"].__dict__ is globals(),
}))
"""


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def told_by_python(folder: Path, *words: str) -> dict[str, object]:
    answer = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    told: dict[str, object] = json.loads(answer.stdout)
    return told


def test_a_script_sees_what_python_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "folder/tell.py", TELL)
    monkeypatch.chdir(tmp_path)
    argv, path, main = sys.argv, sys.path[:], sys.modules["__main__"]
    ending = Program("folder/tell.py", ("-x", "--", "1")).run()
    assert ending.status == 0
    assert json.loads(capsys.readouterr().out) == told_by_python(
        tmp_path, "folder/tell.py", "-x", "--", "1"
    )
    assert (sys.argv, sys.path, sys.modules["__main__"]) == (argv, path, main)


def test_a_module_sees_what_python_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "told/__init__.py", "")
    write(tmp_path, "told/tell.py", TELL)
    monkeypatch.chdir(tmp_path)
    assert Program("told.tell", ("-m", "x"), is_module=True).run().status == 0
    assert json.loads(capsys.readouterr().out) == told_by_python(
        tmp_path, "-m", "told.tell", "-m", "x"
    )


def test_a_folder_and_a_zip_file_run_their_main(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "app/helper.py", "WORD = 'helped'")
    write(tmp_path, "app/__main__.py", "import helper; print(helper.WORD)")
    assert Program(str(tmp_path / "app")).run().status == 0
    del sys.modules["helper"]
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("helper.py", "WORD = 'zipped'")
        archive.writestr("__main__.py", "import helper; print(helper.WORD)")
    assert Program(str(tmp_path / "app.zip")).run().status == 0
    del sys.modules["helper"]
    assert capsys.readouterr().out == "helped\nzipped\n"


@pytest.mark.parametrize(
    ("code", "status", "printed"),
    [("", 0, ""), ("0", 0, ""), ("7", 7, ""), ("None", 0, ""), ("'no data'", 1, "no data\n")],
)
def test_sys_exit_decides_the_status(
    code: str, status: int, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = Program(write(tmp_path, "leave.py", f"import sys; sys.exit({code})")).run()
    assert (ending.status, ending.error) == (status, None)
    assert capsys.readouterr().err == printed


@pytest.mark.parametrize("as_module", [False, True])
def test_an_exception_is_printed_as_python_prints_it(
    as_module: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(
        tmp_path,
        "failing.py",
        "def inner():\n    {}['key']\ntry:\n    inner()\n"
        "except KeyError as error:\n    raise ValueError('outer') from error\n",
    )
    monkeypatch.chdir(tmp_path)
    words = ["-m", "failing"] if as_module else ["failing.py"]
    python = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True)
    ending = Program(words[-1], is_module=as_module).run()
    assert (ending.status, repr(ending.error)) == (1, "ValueError('outer')")
    expected = [line for line in python.stderr.splitlines() if "<frozen runpy>" not in line]
    assert capsys.readouterr().err.splitlines() == expected


def test_an_interrupted_program_ends_as_shells_expect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = Program(write(tmp_path, "stop.py", "raise KeyboardInterrupt")).run()
    assert ending.status == 130  # 128 + SIGINT
    assert capsys.readouterr().err.endswith("KeyboardInterrupt\n")


def test_the_virtual_allocators_exception_is_not_shown_behind_torchs() -> None:
    own = OutOfDeviceMemory("own words", requested_bytes=1, segment_bytes=2)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        raise torch.OutOfMemoryError("torch's words") from own
    as_python_shows(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


THREADS = """
import sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import torch

def work(name):
    time.sleep(0.2)
    tensor = torch.ones(1 << 18, device="cuda")
    text = " ".join([name, str(torch.cuda.is_available()), str(tensor.device)])
    print(text + "\\n", end="", flush=True)

def start_another():
    work("first")
    threading.Thread(target=work, args=("second",)).start()

threading.Thread(target=start_another).start()
pool = ThreadPoolExecutor(2)
for name in ("third", "fourth", "fifth"):
    pool.submit(work, name)
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
{end}
"""


@pytest.mark.parametrize(("end", "status"), [("", 0), ("sys.exit(3)", 3), ("raise ValueError", 1)])
def test_threads_that_outlive_the_main_thread_have_the_gpu(
    end: str, status: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "threads.py", THREADS.format(end=end))
    with VirtualGPU("T4"):
        ending = Program(path).run()
        assert ending.status == status
        assert torch.cuda.max_memory_allocated() >= 2**20
    shown = capfd.readouterr()
    names = ("first", "second", "third", "fourth", "fifth")
    assert sorted(shown.out.splitlines()) == sorted(f"{name} True cuda:0" for name in names)
    assert "in thread" not in shown.err
    with ThreadPoolExecutor(1) as pool:  # pools can be used as before
        assert pool.submit(lambda: 1).result() == 1


def test_waiting_for_threads_can_be_stopped(tmp_path: Path) -> None:
    text = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
    command = [sys.executable, "-m", "vramlab", "run", "--seconds", "2", "threads.py"]
    write(tmp_path, "threads.py", text)
    ran = subprocess.run(
        [*command[:-1], "--engine", "portable", command[-1]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert "Stopped after the requested time (--seconds)" in ran.stderr
