"""CUDA's arithmetic needs nothing but Python: no torch, and nothing of vramlab above it."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

from vramlab import cuda_rules

BELOW = (
    *("cuda_rules", "units", "errors"),
    *("gpu_model", "gpu_table", "gpu_figures", "catalogue"),
)


def test_it_imports_no_torch() -> None:
    modules = [
        f"vramlab.cuda_rules.{each.name}" for each in pkgutil.iter_modules(cuda_rules.__path__)
    ]
    assert len(modules) > 7
    program = (
        f"import sys, {', '.join(modules)}; "
        "print(*(n for n in sys.modules if n.partition('.')[0] in ('torch', 'numpy', 'vramlab')))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    parts = {name.split(".")[1] for name in answer.stdout.split() if name != "vramlab"}
    assert "torch" not in answer.stdout.split()
    assert "numpy" not in answer.stdout.split()
    assert parts <= set(BELOW)
