"""Attaching changes torch; detaching puts back exactly what was there. GPUs nest."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch_state import state_of_torch, train_a_little

import vramlab
from vramlab import attachment, catalogue
from vramlab.attachment import RealGPU, catalogue_model
from vramlab.gpu import VirtualGPU, attached
from vramlab.units import MIB


def test_detaching_restores_torch_exactly() -> None:
    with VirtualGPU("T4"):  # what torch and Python load when it is first used
        train_a_little()
    before = state_of_torch()
    with VirtualGPU("T4", 2):
        during = state_of_torch()
        train_a_little()
    after = state_of_torch()
    assert {k for k in before if before[k] != after.get(k)} == set()
    assert set(after) == set(before)
    assert sum(before.get(k) != during[k] for k in during) > 50


def test_detaching_after_an_error_restores_torch() -> None:
    before = state_of_torch()
    with pytest.raises(RuntimeError, match="a GPU that fails"), VirtualGPU("T4"):
        raise RuntimeError("a GPU that fails")
    assert state_of_torch() == before


def test_gpus_nest_and_sleep() -> None:
    with VirtualGPU("T4") as outer:
        x = torch.zeros(MIB, device="cuda")
        with VirtualGPU("A100-40GB", 2) as inner:
            assert attached() is inner
            assert torch.cuda.device_count() == 2
            assert torch.cuda.memory_allocated() == 0
            y = torch.zeros(2 * MIB, device="cuda:1")
            assert torch.cuda.memory_allocated(1) == 8 * MIB
            del x  # the block returns to the allocator it came from
            assert outer.machine.devices[0].allocator.allocated_bytes == 0
        assert attached() is outer
        assert torch.cuda.device_count() == 1
        assert torch.cuda.memory_allocated() == 0
        assert torch.cuda.max_memory_allocated() == 4 * MIB
        assert inner.machine.devices[1].allocator.allocated_bytes == 8 * MIB
        del y
        assert inner.machine.devices[1].allocator.allocated_bytes == 0
        train_a_little()
    assert attached() is None


def test_tensors_may_outlive_their_gpu() -> None:
    with VirtualGPU("T4") as gpu:
        x = torch.zeros(MIB, device="cuda")
    assert gpu.machine.devices[0].allocator.allocated_bytes == 4 * MIB
    del x
    assert gpu.machine.devices[0].allocator.allocated_bytes == 0


def test_a_gpu_can_come_back() -> None:
    gpu = VirtualGPU("T4")
    with gpu:
        x = torch.zeros(MIB, device="cuda")
    with gpu:
        assert torch.cuda.memory_allocated() == 4 * MIB
        assert (x + 1).device.type == "cuda"
    del x
    with gpu, pytest.raises(RuntimeError, match="is attached already"):
        gpu.attach()
    gpu.detach()  # a second time is harmless
    assert attached() is None


def test_attaching_many_times_does_not_leak() -> None:
    made: list[weakref.ref[Any]] = []
    for _ in range(8):
        with VirtualGPU("T4") as gpu:
            train_a_little()
        made.append(weakref.ref(gpu.machine))
        del gpu
    gc.collect()
    # PyTorch keeps the last kernel that Python has registered for an op, and with it its machine
    assert sum(ref() is not None for ref in made) <= 2


class TestAttach:
    @pytest.fixture(autouse=True)
    def clean(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.delenv(attachment.ENVIRONMENT, raising=False)
        yield
        vramlab.detach()
        assert vramlab.attached() is None

    def test_it_stays_and_prints(self, capsys: pytest.CaptureFixture[str]) -> None:
        gpu = vramlab.attach("T4", count=2, virtual=True)
        assert (gpu.virtual, gpu.name, gpu.count) == (True, "T4", 2)
        assert vramlab.attached() is gpu
        assert capsys.readouterr().out == (
            f"Virtual GPU: 2 x T4, 14.74 GiB, PyTorch {torch.__version__}\n"
        )
        x = torch.zeros(MIB, device="cuda")
        again = vramlab.attach("A100-40GB", quiet=True)
        assert capsys.readouterr().out == ""
        assert again.name == "A100-40GB"
        assert torch.cuda.memory_allocated() == 0  # a fresh one
        del x

    def test_without_a_real_gpu_it_is_virtual(self) -> None:
        gpu = vramlab.attach(quiet=True)
        assert (gpu.virtual, gpu.name, gpu.count) == (True, attachment.DEFAULT, 1)

    def test_with_fewer_real_gpus_than_wanted_they_are_virtual(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as machine:
            machine.setattr(torch.cuda, "is_available", lambda: True)
            machine.setattr(torch.cuda, "device_count", lambda: 1)
            gpu = vramlab.attach("T4", count=2, quiet=True)
            assert (gpu.virtual, gpu.name, gpu.count) == (True, "T4", 2)
            vramlab.detach()

    def test_insisting_on_a_real_one(self) -> None:
        with pytest.raises(RuntimeError, match="there is no GPU on this machine"):
            vramlab.attach(virtual=False)

    @pytest.mark.parametrize(
        ("wanted", "name", "count"), [("L4", "L4", 1), ("V100-16GB:3", "V100-16GB", 3)]
    )
    def test_the_environment_decides(
        self, monkeypatch: pytest.MonkeyPatch, wanted: str, name: str, count: int
    ) -> None:
        monkeypatch.setenv(attachment.ENVIRONMENT, wanted)
        gpu = vramlab.attach("T4", quiet=True)
        assert (gpu.name, gpu.count) == (name, count)
        gpu = vramlab.attach("T4", count=2, virtual=True, quiet=True)  # by name: as for grading
        assert (gpu.name, gpu.count) == ("T4", 2)

    @pytest.mark.parametrize("wanted", ["T4:x", "T4:0", "T4:", "T4:-1", "T4:1.5", "T4:2:3"])
    def test_the_environment_has_to_name_a_number(
        self, wanted: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(attachment.ENVIRONMENT, wanted)
        with pytest.raises(
            ValueError, match=f"invalid VRAMLAB_GPU='{wanted}': .* VRAMLAB_GPU=T4:2"
        ):
            vramlab.attach(quiet=True)
        monkeypatch.delenv(attachment.ENVIRONMENT)
        with pytest.raises(ValueError, match="count=0"):
            vramlab.attach("T4", 0, virtual=True, quiet=True)

    def test_the_environment_may_insist_on_a_real_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(attachment.ENVIRONMENT, "real")
        with pytest.raises(RuntimeError, match=f"unset {attachment.ENVIRONMENT}"):
            vramlab.attach()


def test_a_program_that_never_detaches_ends_cleanly(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, vramlab\n"
        "vramlab.attach('T4', quiet=True)\n"
        "x = torch.zeros(10, device='cuda', requires_grad=True)\n"
        "y = (x * 2).sum()\n"
        "print(torch.cuda.memory_allocated())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", program],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != attachment.ENVIRONMENT},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1024\n", "")


def test_the_attached_gpu_is_found_in_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    with VirtualGPU("L4"):
        assert catalogue_model() is catalogue.find("L4")
    for product_name, name in [
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA GeForce RTX 4060 Ti", "RTX-4060-Ti-8GB"),
        ("NVIDIA GeForce RTX 4060 Ti", "RTX-4060-Ti-16GB"),
    ]:
        real, model = RealGPU(product_name, 1), catalogue.find(name)
        properties = SimpleNamespace(total_memory=model.total_bytes)
        monkeypatch.setattr(attachment, "attached", Mock(return_value=real))
        monkeypatch.setattr(torch.cuda, "get_device_properties", Mock(return_value=properties))
        assert catalogue_model() is model
    monkeypatch.setattr(attachment, "attached", lambda: None)
    with pytest.raises(RuntimeError, match=r"no GPU is attached: call vramlab\.attach\(\) first"):
        catalogue_model()


def test_a_c_function_without_a_stand_in_is_hidden_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a PyTorch that was built with CUDA has them."""
    for name in ("_cuda_unheard_of", "_cuda_get_cudnn_unheard_of"):
        monkeypatch.setattr(torch._C, name, len, raising=False)
    with VirtualGPU("T4"):
        assert not hasattr(torch._C, "_cuda_unheard_of")
        assert torch._C._cuda_get_cudnn_unheard_of is len  # a setting
    assert torch._C._cuda_unheard_of is len
