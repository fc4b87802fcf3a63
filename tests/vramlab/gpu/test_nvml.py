"""nvidia-ml-py, unmodified, over the stand-in for NVML's library."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pynvml
import pytest
import torch
from pynvml import nvmlDeviceGetHandleByIndex, nvmlDeviceGetMemoryInfo, nvmlInit, nvmlShutdown

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.stand_ins.libraries.nvml import answer_for
from vramlab.units import MIB

T4 = catalogue.find("T4")
A100 = catalogue.find("A100-40GB")


@dataclass
class FakeDevice:
    """A GPU of which only what NVML asks is known."""

    model: GPUModel
    used_bytes: int = 0


@pytest.fixture
def gpus() -> list[FakeDevice]:
    return [FakeDevice(T4, used_bytes=100 * MIB), FakeDevice(A100)]


@pytest.fixture
def installed(gpus: list[FakeDevice]) -> Iterator[list[FakeDevice]]:
    answer_for(gpus, patches := Patches())
    yield gpus
    patches.undo()


@pytest.fixture
def initialized(installed: list[FakeDevice]) -> list[FakeDevice]:
    pynvml.nvmlInit()
    return installed


def handle(index: int) -> object:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def test_the_documents_script_prints_what_is_used(initialized: list[FakeDevice]) -> None:
    # As in document 003, with names imported from pynvml before there was a virtual GPU:
    # the T4's driver keeps 15360 - 15095.0625 = 264.9375 MiB, this process takes 100.
    nvmlInit()
    info = nvmlDeviceGetMemoryInfo(nvmlDeviceGetHandleByIndex(0))
    assert info.used // 1024**2 == 364
    nvmlShutdown()


def test_memory_info_counts_the_drivers_part_as_used(initialized: list[FakeDevice]) -> None:
    info = pynvml.nvmlDeviceGetMemoryInfo(handle(0))
    assert info.total == 15360 * MIB
    assert info.used == 15360 * MIB - T4.total_bytes + 100 * MIB
    assert info.free == T4.total_bytes - 100 * MIB  # as cudaMemGetInfo says


def test_memory_info_version_2_counts_it_apart(initialized: list[FakeDevice]) -> None:
    info = pynvml.nvmlDeviceGetMemoryInfo(handle(0), version=pynvml.nvmlMemory_v2)
    assert (info.total, info.used) == (15360 * MIB, 100 * MIB)
    assert info.reserved == 15360 * MIB - T4.total_bytes
    assert info.free == T4.total_bytes - 100 * MIB


def test_memory_info_follows_the_process(initialized: list[FakeDevice]) -> None:
    before = pynvml.nvmlDeviceGetMemoryInfo(handle(1)).used
    initialized[1].used_bytes = 7 * MIB
    assert pynvml.nvmlDeviceGetMemoryInfo(handle(1)).used - before == 7 * MIB


def test_only_a_process_with_a_context_runs(initialized: list[FakeDevice]) -> None:
    (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(handle(0))
    assert (process.pid, process.usedGpuMemory) == (os.getpid(), 100 * MIB)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle(1)) == []
    assert pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle(0)) == []
    assert pynvml.nvmlSystemGetProcessName(os.getpid()) == sys.executable
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlSystemGetProcessName(os.getpid() + 1)


def test_what_a_gpu_is(initialized: list[FakeDevice]) -> None:
    assert pynvml.nvmlDeviceGetCount() == 2
    assert pynvml.nvmlDeviceGetName(handle(0)) == "Tesla T4"
    assert pynvml.nvmlDeviceGetName(handle(1)) == "NVIDIA A100-SXM4-40GB"
    assert pynvml.nvmlDeviceGetCudaComputeCapability(handle(0)) == (7, 5)
    assert pynvml.nvmlDeviceGetIndex(handle(1)) == 1
    assert pynvml.nvmlDeviceGetMinorNumber(handle(1)) == 1
    assert pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle(1)) == 4
    assert pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle(1)) == 16
    assert pynvml.nvmlDeviceGetMemoryBusWidth(handle(1)) == 5120
    assert pynvml.nvmlDeviceGetMaxClockInfo(handle(1), pynvml.NVML_CLOCK_SM) == 1410
    assert pynvml.nvmlDeviceGetMaxClockInfo(handle(1), pynvml.NVML_CLOCK_MEM) == 1215


def test_identities_lead_back_to_the_gpu(initialized: list[FakeDevice]) -> None:
    uuids = [pynvml.nvmlDeviceGetUUID(handle(index)) for index in (0, 1)]
    assert uuids[0] != uuids[1]
    for index, uuid in enumerate(uuids):
        assert uuid.startswith("GPU-")
        found = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        assert pynvml.nvmlDeviceGetIndex(found) == index
        bus_id = pynvml.nvmlDeviceGetPciInfo(handle(index)).busId
        found = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)
        assert pynvml.nvmlDeviceGetIndex(found) == index


def test_pci_info(initialized: list[FakeDevice]) -> None:
    info = pynvml.nvmlDeviceGetPciInfo(handle(1))
    # Bus 7 for the first GPU; device 20b0 of vendor 10de in the PCI ID database.
    assert (info.domain, info.bus, info.device) == (0, 8, 0)
    assert info.busId == "00000000:08:00.0"
    assert info.busIdLegacy == "0000:08:00.0"
    assert info.pciDeviceId == 0x20B0_10DE


def test_no_time_passes(initialized: list[FakeDevice]) -> None:
    rates = pynvml.nvmlDeviceGetUtilizationRates(handle(0))
    assert (rates.gpu, rates.memory) == (0, 0)
    for ask in (
        lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
        lambda gpu: pynvml.nvmlDeviceGetTemperatureV(gpu, pynvml.NVML_TEMPERATURE_GPU),
        pynvml.nvmlDeviceGetPowerUsage,
        pynvml.nvmlDeviceGetFanSpeed,
        lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
        pynvml.nvmlDeviceGetTotalEnergyConsumption,
    ):
        with pytest.raises(pynvml.NVMLError_NotSupported):
            ask(handle(0))


def test_a_geforce_has_no_serial_number(gpus: list[FakeDevice]) -> None:
    gpus[0].model = catalogue.find("RTX-3090")
    answer_for(gpus, patches := Patches())
    pynvml.nvmlInit()
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetSerial(handle(0))
    assert len(pynvml.nvmlDeviceGetSerial(handle(1))) == 13
    patches.undo()


def test_a_function_that_is_not_modelled_is_not_found(initialized: list[FakeDevice]) -> None:
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        pynvml.nvmlDeviceGetAttributes_v2(handle(0))


def test_nothing_is_answered_before_init(installed: list[FakeDevice]) -> None:
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlShutdown()


def test_every_init_needs_its_shutdown(initialized: list[FakeDevice]) -> None:
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetCount() == 2
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


def test_remove_restores_exactly(gpus: list[FakeDevice]) -> None:
    def state() -> list[tuple[str, int, str]]:
        # A cached function stays the very same object, and the cache keeps its contents.
        return [(name, id(value), repr(value)) for name, value in sorted(vars(pynvml).items())]

    before = state()
    answer_for(gpus, patches := Patches())
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 2
    patches.undo()
    assert state() == before
    patches.undo()
    assert state() == before


def test_without_nvidia_ml_py_nothing_happens(
    gpus: list[FakeDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = pynvml.nvmlLib
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as if it were not installed
    answer_for(gpus, patches := Patches())
    assert pynvml.nvmlLib is library
    patches.undo()


@pytest.fixture
def torch_asks(installed: list[FakeDevice], monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch.cuda itself needs to know, the layer below it being tested elsewhere."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


@pytest.mark.usefixtures("torch_asks")
class TestTorchFunctions:
    """torch.cuda's own functions over nvidia-ml-py."""

    def test_device_memory_used(self) -> None:
        # As nvidia-ml-py's version 1: (15360 - 15095.0625) + 100 MiB = 364.9375 MiB.
        assert torch.cuda.device_memory_used(0) / MIB == 364.9375

    def test_list_gpu_processes(self) -> None:
        assert torch.cuda.list_gpu_processes(0) == (
            f"GPU:0\nprocess {os.getpid():>10d} uses      100.000 MB GPU memory"
        )
        assert torch.cuda.list_gpu_processes(1) == "GPU:1\nno processes are running"
