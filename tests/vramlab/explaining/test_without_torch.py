"""The page of the site runs this code in a browser, where torch cannot be imported."""

from __future__ import annotations

import subprocess
import sys

MODULES = (
    "vramlab.allocator",
    "vramlab.explaining.explanation",
    "vramlab.explaining.message",
    "vramlab.viz",
)


def test_torch_and_numpy_are_not_imported() -> None:
    blocked = "import sys; sys.modules |= {'torch': None, 'numpy': None}"
    program = f"{blocked}; import {', '.join(MODULES)}"
    subprocess.run([sys.executable, "-c", program], check=True)
