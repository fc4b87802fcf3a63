"""What docs/planning.md shows of a plan: the answer to the command that stands above it."""

from __future__ import annotations

import subprocess
import sys

COMMAND = (
    *("plan", "llama-3.1-8b", "--gpu", "H100", "--batch", "16", "--sequence", "4096"),
    *("--data", "8", "--zero", "3"),
)


def answer() -> str:
    """Return what `vramlab plan` says, as a block."""
    ran = subprocess.run(
        [sys.executable, "-m", "vramlab", *COMMAND], capture_output=True, text=True
    )
    return f"```text\n{ran.stdout.strip()}\n```"
