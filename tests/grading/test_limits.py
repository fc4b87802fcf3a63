"""A repaired program may use what it was given, to the byte, and is asked where it ended."""

from __future__ import annotations

import pytest
import torch

import vramlab
from vramlab.grading.limits import limited, peak_report
from vramlab.grading.task import NotFixed
from vramlab.units import MIB


def tensor(size_bytes: int) -> torch.Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8, device="cuda")


def never(held_bytes: int) -> str:
    raise AssertionError(f"ran out of memory with {held_bytes} bytes")


@pytest.mark.parametrize("limit_mib", [60, 62, 124, 242])
def test_the_whole_limit_may_be_reserved(limit_mib: int) -> None:
    """All but 60 MiB, divided and multiplied by this GPU's total, come out a byte short."""
    with vramlab.VirtualGPU("T4"), limited(limit_mib * MIB, never):
        block = tensor(limit_mib * MIB)  # a segment of its own, as large
        del block


def test_a_byte_less_than_a_segment_is_too_little() -> None:
    with (
        vramlab.VirtualGPU("T4"),
        pytest.raises(NotFixed),
        limited(62 * MIB - 1, lambda held_bytes: "at once."),
    ):
        tensor(62 * MIB)


def test_what_was_reserved_before_counts() -> None:
    with vramlab.VirtualGPU("T4"):
        before = tensor(20 * MIB)
        with limited(60 * MIB, never):
            block = tensor(40 * MIB)  # 20 + 40 = 60
            with pytest.raises(torch.cuda.OutOfMemoryError):
                tensor(1)  # a segment of 2 MiB: 62 > 60
        del before, block


def test_says_what_was_given_and_where_it_ended() -> None:
    held = []

    def where(held_bytes: int) -> str:
        held.append((held_bytes, torch.cuda.memory_allocated()))
        return "in step 2 of 3. Who holds it?"

    def program() -> None:
        first, second = tensor(30 * MIB), tensor(20 * MIB)
        del second
        torch.cuda.empty_cache()
        third = tensor(40 * MIB)  # 30 + 40 = 70 > 60
        del first, third

    with vramlab.VirtualGPU("T4"):
        with pytest.raises(NotFixed) as failure, limited(60 * MIB, where):
            program()
        cause = failure.value.__cause__
    message = "With 60.00 MiB to use, it runs out of memory in step 2 of 3. Who holds it?"
    assert str(failure.value) == message
    assert isinstance(cause, torch.cuda.OutOfMemoryError)
    assert held == [(50 * MIB, 30 * MIB)]  # 30 + 20 at most; the first tensor is still there


def test_what_comes_after_has_the_whole_gpu_again() -> None:
    with vramlab.VirtualGPU("T4", alloc_conf="per_process_memory_fraction:0.5"):
        with limited(2 * MIB, never):
            pass
        assert torch.cuda.get_per_process_memory_fraction() == 0.5
        with pytest.raises(NotFixed), limited(2 * MIB, lambda held_bytes: "here."):
            tensor(4 * MIB)
        assert torch.cuda.get_per_process_memory_fraction() == 0.5


def test_other_errors_pass() -> None:
    with (
        vramlab.VirtualGPU("T4"),
        pytest.raises(ZeroDivisionError),
        limited(2 * MIB, never),
    ):
        raise ZeroDivisionError


def test_more_than_the_gpu_has_is_no_limit() -> None:
    with vramlab.VirtualGPU("T4"):
        _, total_bytes = torch.cuda.mem_get_info()
        with limited(total_bytes, never):
            assert torch.cuda.get_per_process_memory_fraction() == 1.0
        with pytest.raises(ValueError, match="fraction"), limited(total_bytes + 2 * MIB, never):
            pass


def test_peak_report_has_the_peak_and_the_limit() -> None:
    with vramlab.VirtualGPU("T4"):
        first, second = tensor(30 * MIB), tensor(20 * MIB)
        del second
        assert peak_report(60 * MIB) == "peak 50.00 MiB of 60.00 MiB"
        del first
