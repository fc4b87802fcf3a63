"""Batches come out the same every time, take only themselves, and are each loaded once."""

from __future__ import annotations

import pytest
import torch

import vramlab
from vramlab.units import MIB
from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.batches import (
    batch_bytes,
    check_order,
    numbered_batch,
    numbered_samples,
    pairs,
    require_loaded,
    whole_numbers,
)


def test_a_batch_is_the_same_every_time_and_no_other() -> None:
    with vramlab.VirtualGPU("T4", values=True):
        state = torch.cuda.get_rng_state()
        batch, again, other = (numbered_batch(index, 3, 100).cpu() for index in (2, 2, 3))
        assert torch.cuda.get_rng_state().equal(state)
    assert batch.shape == (3, 100)
    assert batch.dtype == torch.float32
    assert batch.equal(again)
    assert not (batch == other).any()
    assert len(set(batch.flatten().tolist())) == 300  # nothing comes twice
    assert batch.min() >= 0
    assert batch.max() < 1


def test_whole_numbers_add_up_exactly() -> None:
    with vramlab.VirtualGPU("T4", values=True):
        batch = whole_numbers(0, 64, 64).cpu()
    assert set(batch.flatten().tolist()) <= set(range(251))
    assert int(batch.sum()) == sum(int(number) for number in batch.flatten())


def test_a_sample_is_the_same_in_every_batch() -> None:
    with vramlab.VirtualGPU("T4", values=True):
        some, more = numbered_samples(2, 4, 5).cpu(), numbered_samples(0, 4, 5).cpu()
    assert some.equal(more[2:])


def test_a_batch_takes_its_own_memory_alone() -> None:
    with vramlab.VirtualGPU("T4"):
        batch = numbered_batch(0, 1024, 512)
        assert torch.cuda.max_memory_allocated() == 2 * MIB  # 4 x 1024 x 512
        del batch


def test_targets_are_the_batch_turned_around() -> None:
    with vramlab.VirtualGPU("T4", values=True):
        batch, targets = (tensor.cpu() for tensor in pairs(3, 4)(0))
        assert batch.equal(numbered_batch(0, 3, 4).cpu())
    assert targets.tolist() == [list(reversed(row)) for row in batch.tolist()]
    assert batch_bytes(3, 4) == batch.nbytes == 48


def test_each_batch_has_to_be_loaded() -> None:
    require_loaded([1, 0, 1], 2)
    with pytest.raises(NotFixed, match=r"^It fits, but never loads batch 1 of the 3\.$"):
        require_loaded([0, 2, 0], 3)


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
        f"It fits, but does not load each of the 3 batches once and in order. It loaded {shown}."
    )
    with pytest.raises(NotFixed, match=f"^{message}$"):
        check_order(loaded, 3)
