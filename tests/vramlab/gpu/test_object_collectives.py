"""Objects sent among ranks of which only one runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU


@pytest.fixture
def as_rank(gpu: VirtualGPU) -> Iterator[Callable[[int, int], None]]:
    """Become rank `rank` of `size`, alone."""

    def become(rank: int, size: int) -> None:
        store = dist.HashStore()
        dist.init_process_group("nccl", store=store, rank=rank, world_size=size)

    yield become
    dist.destroy_process_group()


def test_other_ranks_have_the_same(as_rank: Callable[[int, int], None]) -> None:
    as_rank(1, 2)
    mine = {"loss": 1.5}
    gathered = [None, None]
    dist.all_gather_object(gathered, mine)
    assert gathered == [mine, mine]
    assert gathered[0] is not mine


def test_where_this_rank_sends(as_rank: Callable[[int, int], None]) -> None:
    as_rank(1, 2)
    gathered = [None, None]
    dist.gather_object("mine", gathered, dst=1)
    assert gathered == ["mine", "mine"]
    sent = ["configuration"]
    dist.broadcast_object_list(sent, 1)
    assert sent == ["configuration"]
    received = [None]
    dist.scatter_object_list(received, ["of 0", "of 1"], 1)
    assert received == ["of 1"]


def test_what_only_another_rank_knows(as_rank: Callable[[int, int], None]) -> None:
    as_rank(1, 2)
    with pytest.raises(UnsupportedOnVirtualGPU, match="broadcast_object_list from rank 0: this"):
        dist.broadcast_object_list([None], src=0)
    with pytest.raises(UnsupportedOnVirtualGPU, match="does not know what that one sends"):
        dist.scatter_object_list([None], None, src=0)


def test_pytorchs_own_come_back(gpu: VirtualGPU) -> None:
    gpu.detach()
    before = dist.all_gather_object
    gpu.attach()
    assert dist.all_gather_object is not before
    gpu.detach()
    assert dist.all_gather_object is before
    gpu.attach()
