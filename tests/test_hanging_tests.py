"""A test that hangs is ended, and told by its name and its stacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

HANGS = """
import threading

def hang():
    threading.Event().wait()

def test_that_hangs():
    hang()

def test_that_passes():
    pass
"""


def test_a_test_that_hangs_is_ended_and_told(tmp_path: Path) -> None:
    program = tmp_path / "test_it.py"
    program.write_text(HANGS)
    words = [
        "-c",
        f"{ROOT / 'pyproject.toml'}",
        "--rootdir=.",
        "-n",
        "1",
        "-o",
        "faulthandler_timeout=1",
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "-p", "no:cacheprovider", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    said = ran.stdout + ran.stderr
    assert "crashed while running 'test_it.py::test_that_hangs'" in said
    assert "in hang\n" in said  # the innermost function of the project's own
    assert "1 failed, 1 passed" in said
