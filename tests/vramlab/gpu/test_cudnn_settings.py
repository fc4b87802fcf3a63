"""`torch.backends.cudnn` on a virtual GPU, and what a benchmark of cuDNN's plans allocates."""

from __future__ import annotations

import pytest
import torch

from vramlab.gpu import VirtualGPU

cudnn = torch.backends.cudnn
IMAGE, WEIGHT = (2, 3, 8, 8), (4, 3, 3, 3)


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "benchmark", True)


@pytest.mark.parametrize(
    ("release", "version"), [("2.11", 91900), ("2.13", 92000), ("2.15", 92600)]
)
def test_cudnn_is_there_in_the_version_of_the_release(release: str, version: int) -> None:
    before = cudnn.is_available(), cudnn.version()
    with VirtualGPU("T4", torch_version=release):
        assert (cudnn.is_available(), cudnn.version()) == (True, version)
    assert (cudnn.is_available(), cudnn.version()) == before


def test_the_benchmark_limit_is_kept(gpu: VirtualGPU) -> None:
    assert cudnn.benchmark_limit == 10
    with cudnn.flags(enabled=True, benchmark=True, benchmark_limit=5):
        assert (cudnn.benchmark, cudnn.benchmark_limit) == (True, 5)
    assert (cudnn.benchmark, cudnn.benchmark_limit) == (False, 10)
    cudnn.benchmark_limit = 3
    assert gpu.machine.benchmarks.limit == 3


def peak_of_convolution(gpu: VirtualGPU) -> tuple[int, int]:
    """Measure what a convolution takes at most beyond its output, and reserved bytes after it."""
    image = torch.empty(IMAGE, device="cuda")
    weight = torch.empty(WEIGHT, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    output = torch.nn.functional.conv2d(image, weight, padding=1)
    after_bytes = torch.cuda.memory_allocated()
    del output
    return torch.cuda.max_memory_allocated() - after_bytes, torch.cuda.memory_reserved()


@pytest.mark.usefixtures("benchmark")
def test_a_benchmark_allocates_the_largest_workspace(
    gpu: VirtualGPU, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first plan wants 1 MiB, another 30 MiB. The trial's segment goes back to the driver."""
    plans = (1 << 20, 30 << 20)
    device = gpu.machine.devices[0]
    monkeypatch.setattr(device, "cudnn", lambda convolution, benchmark: plans)
    small_bytes = 2 << 20  # of image, weight and output, and the first plan's workspace
    assert peak_of_convolution(gpu) == (30 << 20, small_bytes)
    assert peak_of_convolution(gpu) == (1 << 20, small_bytes)


def test_without_a_benchmark_the_first_plan_counts(
    gpu: VirtualGPU, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = gpu.machine.devices[0]
    monkeypatch.setattr(device, "cudnn", lambda convolution, benchmark: (1 << 20, 30 << 20))
    assert peak_of_convolution(gpu)[0] == 1 << 20
