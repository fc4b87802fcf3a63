"""Batches come out the same every time, take only themselves, and are each loaded once."""

from __future__ import annotations

import pytest
import torch

import vramlab
from vramlab.units import MIB
from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.batches import batch_bytes, check_order, numbered_batch, pairs


def test_numbers_go_up_and_begin_again() -> None:
    with vramlab.VirtualGPU("T4", values=True):
        batch = numbered_batch(2, 3, 100).cpu()
    assert batch.shape == (3, 100)
    assert batch.dtype == torch.float32
    flat = [float(number) for number in batch.flatten()]
    expected = torch.tensor([index % 253 for index in range(300)]) / 251  # 251 + 2 = 253
    assert flat == expected.tolist()


def test_a_batch_takes_its_own_memory_alone() -> None:
    with vramlab.VirtualGPU("T4"):
        batch = numbered_batch(0, 1024, 512)
        assert torch.cuda.max_memory_allocated() == 2 * MIB  # 4 x 1024 x 512
        del batch


def test_targets_are_the_batch_turned_around() -> None:
    with vramlab.VirtualGPU("T4", values=True):
        batch, targets = (tensor.cpu() for tensor in pairs(3, 4)(0))
    assert batch.equal(torch.arange(12).reshape(3, 4) / 251)
    assert targets.tolist() == [list(reversed(row)) for row in batch.tolist()]
    assert batch_bytes(3, 4) == batch.nbytes == 48


def test_order_is_right() -> None:
    check_order([0, 1, 2], 3)


@pytest.mark.parametrize(
    ("loaded", "shown"),
    [
        ([], "none"),
        ([0, 1], "0, 1"),
        ([0, 2, 1], "0, 2, 1"),
        ([0, 1, 1, 2], "0, 1, 1, 2"),
        ([*range(20)], "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ..."),
    ],
)
def test_order_is_wrong(loaded: list[int], shown: str) -> None:
    message = (
        "It fits, but does not load each of the 3 batches once, in their order. It has loaded "
        f"{shown}."
    )
    with pytest.raises(NotFixed, match=f"^{message}$"):
        check_order(loaded, 3)
