"""One rank whose peers were never started does not wait for them, whatever the engine."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU
from vramlab.gpu.stand_ins.ranks.rank_alone import StoreOfRankAlone, waiting_for_nobody


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
    assert not store.check(["exception_dump"])  # none of them asks for records of a failure
    store.set("remote_error:0", b"ours")
    assert store.check(["remote_error:0"])
    assert not store.check(["remote_error:1"])
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


@pytest.mark.parametrize("rank", [0, 1])
def test_states_of_generators_are_broadcast(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Accelerate does: what other ranks send has no values, and changes nothing."""
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with VirtualGPU("T4", 2):
        dist.init_process_group("nccl")
        try:
            torch.cuda.set_device(rank)
            for generator in (torch.Generator(), torch.Generator("cuda"), torch.default_generator):
                generator.manual_seed(7)
                before = generator.get_state()
                state = before.to("cuda")
                dist.broadcast(state, 0)
                state = state.cpu()
                if generator is torch.default_generator:
                    torch.set_rng_state(state)
                else:
                    generator.set_state(state)
                assert generator.get_state().tolist() == before.tolist()
            state = torch.cuda.get_rng_state().to("cuda")
            dist.broadcast(state, 0)
            torch.cuda.set_rng_state(state.cpu())
            # A state with values is set.
            other = torch.Generator().manual_seed(8)
            torch.set_rng_state(other.get_state())
            assert torch.get_rng_state().tolist() == other.get_state().tolist()
        finally:
            dist.destroy_process_group()


def test_remote_procedure_calls_are_refused_plainly() -> None:
    with VirtualGPU("T4"), pytest.raises(UnsupportedOnVirtualGPU, match=r"torch\.distributed\.rpc"):
        torch.distributed.rpc.init_rpc("worker", rank=0, world_size=1)
