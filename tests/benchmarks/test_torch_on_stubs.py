"""Another PyTorch than the installed one: its wheel on stub libraries, without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.torch_on_stubs import environment
from vramlab import native
from vramlab.native import Build


@pytest.fixture
def build() -> Build:
    """The native engine's CUDA build of the PyTorch that is installed, so of a known one."""
    try:
        return native.find(torch.__version__.partition("+")[0])
    except native.NativeEngineError as error:
        pytest.skip(str(error))


@pytest.mark.long
def test_it_runs_and_has_no_gpu_but_a_virtual_one(build: Build) -> None:
    program = (
        "import torch, vramlab\n"
        "print(torch.__version__, torch.cuda.device_count())\n"
        "with vramlab.VirtualGPU('T4', torch_version='2.11'):\n"
        "    x = torch.ones(1000, device='cuda')\n"
        "    print(torch.cuda.memory_allocated())\n"
    )
    words = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(words, env=environment(build), capture_output=True, text=True)
    # 4000 bytes in blocks of 512
    assert done.stdout.split() == [build.torch_version, "0", "4096"], done.stderr
    libraries = Path(environment(build)["LD_LIBRARY_PATH"].split(":")[0])
    assert (libraries / "libcuda.so.1").exists()
    assert not list(libraries.glob("libnvidia-ml*"))  # without a GPU it does not initialize
