"""Start a program on several GPUs with torchrun, and gather what its processes report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from vramlab_course.programs.ranks.join import REPORTS

LIMIT_S = 300
"""After which a world that does not end is stopped: ranks that wait for each other wait forever."""


def torchrun(module: str, processes: int, *arguments: object) -> list[dict[str, Any]]:
    """Run `torchrun --nproc-per-node=PROCESSES -m MODULE ARGUMENTS...` on this machine.

    Args:
        module: a module that joins the world (`vramlab_course.programs.ranks.join`) and reports.
        processes: how many; each has a GPU.
        arguments: of the program.

    Returns:
        What each rank reported, by rank.

    Raises:
        RuntimeError: a process failed; with the end of what they said.
        subprocess.TimeoutExpired: they did not end.
    """
    python = os.environ.get("PYTHON_EXEC", sys.executable)  # as torchrun itself starts the ranks
    command = [python, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={processes}", "-m", module, *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(
            command,
            env={"OMP_NUM_THREADS": "1", **os.environ, REPORTS: folder},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        reports = [Path(folder) / f"{rank}.json" for rank in range(processes)]
        if result.returncode or not all(report.exists() for report in reports):
            raise RuntimeError(
                f"{' '.join(command[1:])} ended with status {result.returncode}; its last words:\n"
                + result.stderr[-3000:]
            )
        return [json.loads(report.read_text()) for report in reports]
