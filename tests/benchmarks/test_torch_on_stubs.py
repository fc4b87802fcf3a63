"""Another PyTorch than the installed one: its wheel on stub libraries, without a GPU."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import torch_on_stubs
from benchmarks.torch_on_stubs import ROOT, environment
from vramlab import native
from vramlab.native import Build


@pytest.fixture
def build() -> Build:
    """The native engine's CUDA build of the PyTorch that is installed, so of a known one."""
    try:
        return native.find(torch.__version__.partition("+")[0])
    except native.NativeEngineError as error:
        pytest.skip(str(error))


def test_it_comes_before_the_installed_one_and_after_this_vramlab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "mine")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    build = Build(tmp_path / "build", "2.15.0+cu132", 13020, "cp311", tmp_path / "site", "", None)
    found = environment(build)
    assert found["PYTHONPATH"].split(":") == [
        str(ROOT),
        str(tmp_path / "site"),
        str(tmp_path / "build" / "preloads"),
        "mine",
    ]
    assert found["LD_LIBRARY_PATH"] == str(tmp_path / "build" / "lib")
    assert environment(replace(build, site=tmp_path / "b"))["PYTHONPATH"] != found["PYTHONPATH"]


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


def test_a_version_that_there_is_not_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(version: str, report: object) -> None:
        raise native.NativeEngineError(f"there is no {version}")

    monkeypatch.setattr(torch_on_stubs.native, "set_up", fail)
    assert torch_on_stubs.main(["7.1.0", "-c", "pass"]) == 2
    assert "there is no 7.1.0" in capsys.readouterr().err
