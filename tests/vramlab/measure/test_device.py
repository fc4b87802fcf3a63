"""Who has a GPU's memory: NVML's view and torch's fit together."""

from __future__ import annotations

import torch

from vramlab import VirtualGPU
from vramlab.measure import read_device
from vramlab.units import MIB


def test_nothing_is_used_before_the_first_tensor_and_reading_makes_no_context() -> None:
    with VirtualGPU("RTX-3090") as gpu:
        for _ in range(2):
            reading = read_device()
            assert reading.used_bytes == 0
            assert reading.driver_bytes == gpu.model.driver_reserved_bytes
            assert reading.free_bytes == gpu.model.total_bytes


def test_parts_are_context_tensors_and_cache() -> None:
    with VirtualGPU("RTX-3090") as gpu:
        kept = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        freed = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
        del freed
        reading = read_device()
        assert reading.outside_bytes == gpu.model.context_bytes
        assert reading.allocated_bytes == 30 * MIB
        assert reading.cached_bytes == 50 * MIB
        assert reading.reserved_bytes == 80 * MIB
        # what nvidia-smi shows = context + reserved
        assert reading.used_bytes == gpu.model.context_bytes + 80 * MIB
        assert reading.total_bytes == gpu.model.nvml_total_bytes
        del kept


def test_each_gpu_is_read_by_its_index() -> None:
    with VirtualGPU("T4", count=2) as gpu:
        kept = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda:1")
        assert read_device(1).used_bytes == gpu.model.context_bytes + 30 * MIB
        assert read_device(0).allocated_bytes == 0
        del kept
