"""Virtual GPUs to run small programs on. Whatever a test does, its books must balance."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from allocator_invariants import check

from vramlab.gpu import VirtualGPU
from vramlab.gpu.ops.recurrent import cudnn_rnn


@contextmanager
def audited(name: str, count: int = 1, **options: Any) -> Iterator[VirtualGPU]:
    """Attach a GPU; afterwards its allocators' books must balance."""
    with VirtualGPU(name, count, **options) as gpu:
        yield gpu
        for device in gpu.machine.devices:
            check(device.allocator)


@contextmanager
def nothing_left(gpu: VirtualGPU) -> Iterator[None]:
    """What the body leaves allocated, beyond libraries' workspaces, is a leak."""
    yield
    for device in gpu.machine.devices:
        device.free_workspaces()
        cudnn_rnn._dropout_states.pop(device, None)  # PyTorch keeps them for good
        if device.allocator.allocated_bytes:
            gc.collect()
        assert device.allocator.allocated_bytes == 0


@pytest.fixture
def gpu() -> Iterator[VirtualGPU]:
    """One A100. When the test has ended, so have all its tensors."""
    with audited("A100-40GB") as gpu, nothing_left(gpu):
        yield gpu


@pytest.fixture
def gpus() -> Iterator[VirtualGPU]:
    """Two T4s."""
    with audited("T4", 2) as gpu, nothing_left(gpu):
        yield gpu


@pytest.fixture
def no_workspaces() -> Iterator[VirtualGPU]:
    """An A100 by the rules of PyTorch 1.13, in which cuBLAS takes nothing of the allocator."""
    with audited("A100-40GB", torch_version="1.13") as gpu, nothing_left(gpu):
        yield gpu


@pytest.fixture
def nan_gpu() -> Iterator[VirtualGPU]:
    """One A100 whose unknown values read as nan and 0."""
    with audited("A100-40GB", on_value="nan") as gpu, nothing_left(gpu):
        yield gpu


@pytest.fixture
def values_gpu() -> Iterator[VirtualGPU]:
    """One A100 that computes values."""
    with audited("A100-40GB", values=True) as gpu, nothing_left(gpu):
        yield gpu
