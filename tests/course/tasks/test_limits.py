"""A program may use what it was given, to the byte."""

from __future__ import annotations

import pytest
import torch

import vramlab
from vramlab.units import MIB
from vramlab_course.tasks.limits import limited


def tensor(size_bytes: int) -> torch.Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8, device="cuda")


@pytest.mark.parametrize("limit_mib", [60, 62, 124, 242])
def test_the_whole_limit_may_be_reserved(limit_mib: int) -> None:
    """All but 60 MiB, divided and multiplied by this GPU's total, come out a byte short."""
    with vramlab.VirtualGPU("T4"), limited([limit_mib * MIB]):
        block = tensor(limit_mib * MIB)  # a segment of its own, as large
        del block


def test_a_byte_less_than_a_segment_is_too_little() -> None:
    with (
        vramlab.VirtualGPU("T4"),
        pytest.raises(torch.cuda.OutOfMemoryError),
        limited([62 * MIB - 1]),
    ):
        tensor(62 * MIB)


def test_what_was_reserved_before_counts() -> None:
    with vramlab.VirtualGPU("T4"):
        before = tensor(20 * MIB)
        with limited([60 * MIB]):
            block = tensor(40 * MIB)  # 20 + 40 = 60
            with pytest.raises(torch.cuda.OutOfMemoryError):
                tensor(1)  # a segment of 2 MiB: 62 > 60
        del before, block


def test_each_gpu_has_its_own() -> None:
    with vramlab.VirtualGPU("T4", 2), limited([20 * MIB, 40 * MIB]):
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(40 * MIB, dtype=torch.uint8, device="cuda:0")
        block = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda:1")
        del block


def test_what_comes_after_has_the_whole_gpu_again() -> None:
    with vramlab.VirtualGPU("T4", alloc_conf="per_process_memory_fraction:0.5"):
        with limited([2 * MIB]):
            pass
        assert torch.cuda.get_per_process_memory_fraction() == 0.5
        with pytest.raises(torch.cuda.OutOfMemoryError), limited([2 * MIB]):
            tensor(4 * MIB)
        assert torch.cuda.get_per_process_memory_fraction() == 0.5


def test_other_errors_pass() -> None:
    with (
        vramlab.VirtualGPU("T4"),
        pytest.raises(ZeroDivisionError),
        limited([2 * MIB]),
    ):
        raise ZeroDivisionError


def test_more_than_the_gpu_has_is_no_limit() -> None:
    with vramlab.VirtualGPU("T4"):
        _, total_bytes = torch.cuda.mem_get_info()
        with limited([total_bytes]):
            assert torch.cuda.get_per_process_memory_fraction() == 1.0
        with pytest.raises(ValueError, match="fraction"), limited([total_bytes + 2 * MIB]):
            pass
