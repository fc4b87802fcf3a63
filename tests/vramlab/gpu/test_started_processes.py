"""`torch.multiprocessing.spawn`: rank 0 here, the others in processes with a GPU of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.multiprocessing

from vramlab.gpu import VirtualGPU


def work(rank: int, folder: str) -> None:
    """Take some memory on the rank's GPU, and write down how much there is."""
    torch.cuda.set_device(rank)
    kept = torch.ones(rank + 1, 2**20, device="cuda")
    assert kept.device.index == rank
    Path(folder, str(rank)).write_text(f"{os.getpid()} {torch.cuda.memory_allocated()}")


def fail(rank: int) -> None:
    if rank == 1:
        raise ValueError(f"rank {rank} has failed")


def test_each_rank_measures_its_own(gpus: VirtualGPU, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(work, args=(str(tmp_path),), nprocs=2)
    first, second = ((tmp_path / rank).read_text().split() for rank in "01")
    # float32: 4 MiB on rank 0, 8 MiB on rank 1
    assert (first[1], second[1]) == (str(4 * 2**20), str(8 * 2**20))
    assert int(first[0]) == os.getpid() != int(second[0])


def test_without_waiting_all_have_processes(gpus: VirtualGPU, tmp_path: Path) -> None:
    context = torch.multiprocessing.spawn(work, args=(str(tmp_path),), nprocs=2, join=False)
    while not context.join():
        pass
    assert str(os.getpid()) not in [(tmp_path / rank).read_text().split()[0] for rank in "01"]


def test_the_failure_of_a_process_is_told(gpus: VirtualGPU) -> None:
    with pytest.raises(torch.multiprocessing.ProcessRaisedException, match="rank 1 has failed"):
        torch.multiprocessing.spawn(fail, nprocs=2)
