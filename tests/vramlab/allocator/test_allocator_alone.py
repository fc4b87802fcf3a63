"""The allocator needs nothing but Python: no torch, on no path."""

from __future__ import annotations

import subprocess
import sys


def test_it_imports_no_torch() -> None:
    program = (
        "import sys, vramlab.allocator; "
        "print([name for name in sys.modules if name.partition('.')[0] in ('torch', 'numpy')])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"
