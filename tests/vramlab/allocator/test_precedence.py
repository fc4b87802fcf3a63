"""Which of several free blocks of one size is taken: as three releases of PyTorch were seen to do.

The programs ran on the native engine, so PyTorch's own allocator decided: 2.11.0, 2.12.1, 2.13.0.
"""

from __future__ import annotations

import pytest
from allocator_invariants import check

from vramlab.allocator import CachingAllocator, DeviceMemory, Precedence, precedence_of
from vramlab.gpu import VirtualGPU
from vramlab.units import GIB, MIB

ADDRESS, BLOCK, SEGMENT = Precedence


@pytest.mark.parametrize(
    ("version", "precedence"),
    [
        ((1, 13), ADDRESS),
        ((2, 11), ADDRESS),
        ((2, 12), BLOCK),
        ((2, 13), SEGMENT),
        ((3, 0), SEGMENT),
    ],
)
def test_each_version_has_its_own(version: tuple[int, int], precedence: Precedence) -> None:
    assert precedence_of(version) is precedence


@pytest.mark.parametrize(
    ("precedence", "taken"),
    # The driver puts the third and fourth below the first two, each pair in one chunk of 32 MiB.
    [(ADDRESS, [2, 3, 0, 1]), (BLOCK, [0, 1, 2, 3]), (SEGMENT, [0, 1, 2, 3])],
)
@pytest.mark.parametrize("freed", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_whole_segments(precedence: Precedence, taken: list[int], freed: tuple[int, ...]) -> None:
    allocator = CachingAllocator(DeviceMemory(GIB), precedence=precedence)
    blocks = [allocator.malloc(12 * MIB) for _ in range(4)]
    places = [block.address for block in blocks]
    for number in freed:
        allocator.free(blocks[number])
    assert [places.index(allocator.malloc(12 * MIB).address) for _ in range(4)] == taken
    check(allocator)


@pytest.mark.parametrize(
    ("precedence", "taken"),
    # The second segment lies below the first. A segment's last piece is what is left of its first
    # block, which is older than the others.
    [(ADDRESS, [8, 0, 4]), (BLOCK, [4, 0, 8]), (SEGMENT, [0, 4, 8])],
)
def test_pieces_of_segments(precedence: Precedence, taken: list[int]) -> None:
    """Two segments of 20 MiB, each in five pieces of 4 MiB: numbers 0 to 4, and 5 to 9."""
    allocator = CachingAllocator(DeviceMemory(GIB), precedence=precedence)
    blocks = [allocator.malloc(4 * MIB) for _ in range(10)]
    places = [block.address for block in blocks]
    assert allocator.reserved_bytes == 40 * MIB
    for number in (8, 0, 4):
        allocator.free(blocks[number])
    assert [places.index(allocator.malloc(4 * MIB).address) for _ in range(3)] == taken
    check(allocator)


def test_a_virtual_gpu_has_that_of_its_pytorch() -> None:
    import torch

    def first_taken(version: str) -> int:
        with VirtualGPU("T4", torch_version=version):
            tensors = [torch.empty(12 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]
            places = [tensor.data_ptr() for tensor in tensors]
            tensors.clear()
            return places.index(torch.empty(12 * MIB, dtype=torch.uint8, device="cuda").data_ptr())

    assert [first_taken(version) for version in ("2.11", "2.12", "2.13")] == [2, 0, 0]
