"""Programs that run in forks of one process need what they need in a new Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from markdown_blocks import environment

from vramlab import catalogue
from vramlab.sizing.runs import UnusableRun, run_once
from vramlab.sizing.server import RunServer

pytestmark = pytest.mark.long

PROGRAM = """\
import atexit, random, sys, torch
atexit.register(lambda: open("ended", "w").close())
if sys.argv[1] == "fail":
    sys.exit(random.choice(["no such data"]))
assert __name__ == "__main__" and sys.stdin.read() == ""
print(torch.initial_seed())
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.LayerNorm(256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(int(sys.argv[1]), 256, device="cuda")).sum().backward()
    optimizer.step()
with open("seed", "w") as file:
    file.write(f"{torch.initial_seed()} {torch.rand(1).item()}")
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")


def test_a_fork_needs_what_a_new_python_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    options = ("--engine", "portable")
    program, seeds = ["program.py", "64"], []
    with RunServer() as server:
        for name in ("T4", "L4"):
            gpu = catalogue.find(name)
            found = run_once(options, gpu, program, server.run)
            seeds.append(Path("seed").read_text())
            Path("ended").unlink()
            alone = run_once(options, gpu, program)
            seeds.append(Path("seed").read_text())
            assert found.peak_allocated_bytes == alone.peak_allocated_bytes > 0
            assert found.peak_reserved_bytes == alone.peak_reserved_bytes
            assert found.gpu_facts == alone.gpu_facts
            assert (found.fits, found.outcome) == (alone.fits, alone.outcome)
        with pytest.raises(UnusableRun, match=r"used no GPU itself"):
            run_once(options, gpu, ["program.py", "fail"], server.run)
    assert len(set(seeds)) == len(seeds)  # as in new processes


def test_ctrl_c_prints_the_table_so_far(tmp_path: Path) -> None:
    text = """\
import time, torch
name = torch.cuda.get_device_name()
open(name.replace(" ", "-"), "w").close()
torch.ones(2**20, device="cuda")
if "T4" in name:
    time.sleep(100)
"""
    (tmp_path / "program.py").write_text(text)
    words = ["--engine", "portable", "--gpu", "T4,L4", "--json", "table.json", "program.py"]
    process = subprocess.Popen(
        [sys.executable, "-m", "vramlab", "run", *words],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 240
    while not (tmp_path / "Tesla-T4").exists():
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "The program fits on L4; 1 smaller GPU was not tried." in out
    told = json.loads((tmp_path / "table.json").read_text())
    assert [row["gpu"] for row in told["gpus"]] == ["L4"]
