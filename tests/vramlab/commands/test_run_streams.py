"""`vramlab run` reports whatever the program does to stdout, stderr and the current folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_blocks import environment
from warm_python import warm_python

from vramlab.cli import main

pytestmark = pytest.mark.long

USE = "import os, sys, torch\nx = torch.ones(1000, device='cuda')\nprint('said')\n"
# a segment, and the context
REPORT = "\nfits: cuda:0 needs 439.00 MiB of 39.39 GiB (1.1%) at the peak\n"

REPLACED = {
    "a logger": (
        "class Logger:\n    def write(self, text): pass\nsys.stdout = sys.stderr = Logger()"
    ),
    "a file that is closed": "sys.stdout = sys.stderr = open(os.devnull); sys.stderr.close()",
    "None": "sys.stdout = sys.stderr = None",
    "what raises": (
        "class Raising:\n    def __getattr__(self, name): raise RuntimeError(name)\n"
        "sys.stdout = sys.stderr = Raising()"
    ),
}


@pytest.mark.parametrize("text", REPLACED.values(), ids=REPLACED)
@pytest.mark.parametrize("ending", ["", "\nraise ValueError('words')", "\nsys.exit('words')"])
def test_the_report_goes_where_stderr_was(
    text: str,
    ending: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("stdout", "stderr"):  # restored afterwards
        monkeypatch.setattr(sys, name, getattr(sys, name))
    script = tmp_path / "train.py"
    script.write_text(f"{USE}{text}{ending}\n")
    assert main(["run", str(script)]) == (1 if ending else 0)
    out, err = capsys.readouterr()
    assert out == "said\n"
    assert REPORT.replace("fits", "until then" if ending else "fits") in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "text",
    [
        "sys.stdout.close(); sys.stderr.close()",
        "sys.stdout.flush(); sys.stderr = sys.stdout = open('log', 'w')\n"
        "os.dup2(sys.stdout.fileno(), 1); os.dup2(sys.stdout.fileno(), 2)\n"
        "print('logged', flush=True)",
    ],
    ids=["closed", "led elsewhere"],
)
def test_the_report_goes_where_the_process_was_led(text: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"{USE}{text}\n")
    ran = subprocess.run(
        [warm_python(), "-m", "vramlab", "run", "train.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (0, "said\n")
    assert REPORT in ran.stderr
    log = tmp_path / "log"
    assert not log.exists() or log.read_text() == "logged\n"


def test_the_report_is_told_though_nobody_reads_stdout(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(USE)
    with subprocess.Popen(
        [warm_python(), "-m", "vramlab", "run", "train.py"],
        cwd=tmp_path,
        env=environment(PYTHONUNBUFFERED=""),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert REPORT in process.stderr.read()
    assert process.returncode == 141  # 128 + SIGPIPE


@pytest.mark.parametrize(
    "away", ["os.chdir('/')", "os.mkdir('x'); os.chdir('x'); os.rmdir('../x')"]
)
def test_files_and_names_are_told_from_where_the_program_was_started(
    away: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(f"{USE}{away}\n")
    assert main(["run", "--json", "r.json", "--snapshot", "s.pickle", "code/train.py"]) == 0
    assert "\n  code/train.py:2 <module>  " in capsys.readouterr().err
    assert json.loads((tmp_path / "r.json").read_text())["folder"] == str(tmp_path)
    assert (tmp_path / "s.pickle").stat().st_size > 0
