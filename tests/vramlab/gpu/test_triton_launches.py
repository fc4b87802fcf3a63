"""Triton's launches do nothing on a virtual GPU, and are counted.

Triton itself is for Linux alone and large; a package with the same interface takes its place.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import vramlab
from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.units import MIB

FILES = {
    "__init__.py": "from . import runtime\n",
    "testing.py": "def do_bench(fn, **options): raise RuntimeError('no GPU')\n"
    "do_bench_cudagraph = do_bench\n",
    "runtime/__init__.py": "from .driver import driver\nfrom .jit import JITFunction\n",
    "runtime/driver.py": """
class DriverConfig:
    def __init__(self): self._active = None
    @property
    def active(self):
        if self._active is None: raise RuntimeError("0 active drivers")
        return self._active
driver = DriverConfig()
""",
    "runtime/jit.py": """
from .driver import driver
class JITFunction:
    def __init__(self, fn, arg_names):
        self.fn, self.__name__, self.arg_names = fn, fn.__name__, arg_names
    def run(self, *args, grid, warmup, **kwargs): raise RuntimeError(driver.active)
    def warmup(self, *args, grid, **kwargs):
        return self.run(*args, grid=grid, warmup=True, **kwargs)
    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)
""",
}


@pytest.fixture
def triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Triton, imported by a program that runs on a T4."""
    for name, text in FILES.items():
        path = tmp_path / "triton" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_triton(name)}
    with vramlab.VirtualGPU("T4"):
        yield importlib.import_module("triton")
    for name in list(sys.modules):
        if _is_triton(name):
            del sys.modules[name]
    sys.modules.update(before)


def _is_triton(name: str) -> bool:
    return name.partition(".")[0] == "triton"


def add_kernel() -> None: ...


def test_launches_are_counted_and_take_nothing(triton: Any) -> None:
    kernel = triton.runtime.JITFunction(add_kernel, ["x", "out", "n"])
    x = torch.ones(1000, device="cuda")
    out = torch.empty_like(x)
    asked = []
    before_bytes = torch.cuda.max_memory_allocated()
    for _ in range(3):
        kernel[lambda meta: asked.append(meta) or (1,)](x, out, n=1000, BLOCK=128)
    assert [(meta["n"], meta["BLOCK"], meta["x"] is x) for meta in asked] == [(1000, 128, True)] * 3
    assert torch.cuda.max_memory_allocated() == before_bytes
    awake = vramlab.attached()
    assert awake.machine.skipped_kernels == {"add_kernel": 3}


def test_the_driver_describes_the_gpu(triton: Any) -> None:
    active = triton.runtime.driver.active
    assert active.get_active_torch_device() == torch.device("cuda", 0)
    assert active.utils.get_device_properties(0)["multiprocessor_count"] == 40


def test_measuring_takes_its_buffer_and_answers_nan(triton: Any) -> None:
    testing = importlib.import_module("triton.testing")
    calls: list[int] = []
    low, high = testing.do_bench(lambda: calls.append(1), quantiles=[0.2, 0.8])
    assert math.isnan(low)
    assert math.isnan(high)
    assert calls == [1]
    assert torch.cuda.max_memory_allocated() == 256 * MIB  # what clears the L2 cache


def test_what_only_a_compiled_kernel_knows_is_refused(triton: Any) -> None:
    kernel = triton.runtime.JITFunction(add_kernel, [])
    with pytest.raises(UnsupportedOnVirtualGPU, match="add_kernel would be compiled to ask"):
        kernel.warmup(grid=(1,))
    with (
        vramlab.VirtualGPU("T4", values=True),
        pytest.raises(UnsupportedOnVirtualGPU, match="add_kernel computes values"),
    ):
        kernel[(1,)]()


def test_afterwards_triton_is_as_it_was(triton: Any) -> None:
    vramlab.attached().detach()
    with pytest.raises(RuntimeError, match="0 active drivers"):
        _ = triton.runtime.driver.active
    with pytest.raises(RuntimeError, match="0 active drivers"):
        triton.runtime.JITFunction(add_kernel, [])[(1,)]()
