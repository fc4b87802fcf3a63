"""The lesson's complete DDP program runs as it is printed, as one rank of four."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat

LESSON = Path(__file__).resolve().parents[3] / "lessons" / "19_dp_and_ddp.ipynb"


def test_the_complete_program_runs(tmp_path: Path) -> None:
    cells = nbformat.read(LESSON, as_version=nbformat.NO_CONVERT).cells
    programs = [
        code
        for cell in cells
        for code in re.findall(r"```python\n(.*?)```", cell.source, flags=re.DOTALL)
        if "init_process_group" in code
    ]
    assert len(programs) == 1
    (tmp_path / "train.py").write_text(programs[0], encoding="utf-8")
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4"}
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    ran = subprocess.run(
        [sys.executable, "-m", "vramlab", "run", "--gpu", "T4", "train.py"],
        cwd=tmp_path,
        env={**os.environ, **rank, **address},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    # 256 rows in steps of 4 ranks x 8 rows are 8 steps an epoch.
    report = ran.stdout + ran.stderr
    assert "(rank 0 of 4)" in report
    assert "16 optimizer steps" in report
