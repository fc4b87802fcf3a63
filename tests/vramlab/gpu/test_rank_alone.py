"""One rank of a world whose others nobody has started waits for none, whatever the engine."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from vramlab.gpu.stand_ins.rank_alone import StoreOfRankAlone, waiting_for_nobody


def test_a_rank_meets_nobody_and_its_collectives_move_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "8")
    meet, told_before = distributed_c10d.rendezvous, sys.excepthook
    with waiting_for_nobody():
        dist.init_process_group("gloo")
        try:
            assert (dist.get_rank(), dist.get_world_size()) == (2, 8)
            total = torch.ones(3)
            dist.all_reduce(total)
            assert total.tolist() == [1, 1, 1]  # as if all others had sent nothing
            parts = [torch.zeros(2) for _ in range(8)]
            dist.all_gather(parts, torch.ones(2))
            assert len(parts) == 8
        finally:
            dist.destroy_process_group()
    assert distributed_c10d.rendezvous is meet
    assert sys.excepthook is told_before  # and not one for errors of rank 2


def test_its_store_has_what_others_would_have_written() -> None:
    store = StoreOfRankAlone()
    store.set("mine", b"written")
    assert store.get("mine") == b"written"
    assert len(store.get("of the first rank")) == 128  # of which NCCL's identifiers are
    assert store.check(["of another rank"])
    store.wait(["of another rank"])
    assert (store.add("arrived", 1), store.add("arrived", 1)) == (1, 2)
    assert store.clone().get("mine") == b"written"


def test_a_world_of_one_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs an address, as PyTorch says itself: nothing is replaced."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with waiting_for_nobody(), pytest.raises(ValueError, match="MASTER_ADDR"):
        dist.init_process_group("gloo")
