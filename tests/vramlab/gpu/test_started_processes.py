"""`torch.multiprocessing.spawn`: rank 0 here, the others in processes with a GPU of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from markdown_blocks import environment
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from warm_python import warm_children, warm_python

from vramlab.gpu import VirtualGPU

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True, scope="module")
def _started_of_warm_python() -> Iterator[None]:
    with warm_children(warm_python()):
        yield


def work(rank: int, folder: str) -> None:
    """Take some memory on the rank's GPU, and write down how much there is."""
    torch.cuda.set_device(rank)
    kept = torch.ones(rank + 1, 2**20, device="cuda")
    assert kept.device.index == rank
    Path(folder, str(rank)).write_text(f"{os.getpid()} {torch.cuda.memory_allocated()}")


HAD_A_GPU = torch.cuda.is_available()
"""Whether this module was imported beside one."""


def tell(rank: int, folder: str) -> None:
    """Write down whether there was a GPU when the program was imported."""
    Path(folder, str(rank)).write_text(f"{HAD_A_GPU}")


def wait_for_the_other(rank: int, folder: str) -> None:
    """Fail as rank 1; wait for it without end as rank 0."""
    if rank == 1:
        os._exit(3)
    while True:
        time.sleep(0.01)


STUCK = """\
import ctypes, os, torch
def work(rank):
    if rank == 1:
        os._exit(3)
    ctypes.CDLL(None).pause()
if __name__ == "__main__":
    from vramlab.gpu.stand_ins.ranks import multiprocessing
    multiprocessing._GRACE_SECONDS = 0.5  # ten, else
    torch.multiprocessing.spawn(work, nprocs=2)
"""


@contextmanager
def group(rank: int, folder: str) -> Iterator[None]:
    """Meet the other rank in a file."""
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{folder}/met", rank=rank, world_size=2)
    yield
    dist.destroy_process_group()


def send_objects(rank: int, folder: str) -> None:
    """Write down what all functions that send objects have given this rank."""
    with group(rank, folder):
        gathered, received = [None, None], [None]
        dist.all_gather_object(gathered, {"rank": rank})
        found: list[Any] = [gathered]
        on_first = [None, None] if rank == 0 else None
        dist.gather_object(f"of {rank}", on_first, dst=0)
        found.append(on_first)
        for source in (0, 1):
            sent = [f"from {rank}", rank]
            dist.broadcast_object_list(sent, src=source)
            dist.scatter_object_list(received, ["a", "b"] if rank == source else None, src=source)
            found += [sent, received[0]]
        for number in range(2):
            if rank == 0:
                dist.send_object_list([number, "x"], dst=1)
            else:
                objects = [None, None]
                assert dist.recv_object_list(objects, src=0) == 0
                found.append(objects)
        Path(folder, str(rank)).write_text(json.dumps(found))


def train_stage(rank: int, folder: str) -> None:
    """Train a stage of a pipeline, whose ranks tell each other the shapes of activations."""
    with group(rank, folder):
        layers = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).to("cuda")
        stage = PipelineStage(layers, rank, 2, torch.device("cuda", rank))
        schedule = Schedule1F1B(stage, 8, loss_fn=nn.functional.mse_loss)
        batch = torch.randn(64, 512, device="cuda")
        before_bytes = torch.cuda.memory_allocated()
        schedule.step(batch) if rank == 0 else schedule.step(target=batch)
        grown_bytes = torch.cuda.memory_allocated() - before_bytes
        Path(folder, str(rank)).write_text(str(grown_bytes))


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


def test_objects_reach_other_ranks(gpus: VirtualGPU, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(send_objects, args=(str(tmp_path),), nprocs=2)
    first, second = (json.loads((tmp_path / rank).read_text()) for rank in "01")
    everyones = [{"rank": 0}, {"rank": 1}]
    assert first == [everyones, ["of 0", "of 1"], ["from 0", 0], "a", ["from 1", 1], "a"]
    sent = [["from 0", 0], "b", ["from 1", 1], "b"]
    assert second == [everyones, None, *sent, [0, "x"], [1, "x"]]


def test_stages_of_a_pipeline_tell_each_other_shapes(gpus: VirtualGPU, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(train_stage, args=(str(tmp_path),), nprocs=2)
    gradients_bytes = 4 * (2 * 512 * 2048 + 2048 + 512)
    for rank in "01":
        # and beside them workspaces, and what is received
        assert int((tmp_path / rank).read_text()) > gradients_bytes


def test_the_failure_of_a_process_is_told(gpus: VirtualGPU) -> None:
    with pytest.raises(torch.multiprocessing.ProcessRaisedException, match="rank 1 has failed"):
        torch.multiprocessing.spawn(fail, nprocs=2)


def test_programs_are_imported_beside_a_gpu(gpus: VirtualGPU, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(tell, args=(str(tmp_path),), nprocs=2)
    assert (tmp_path / "1").read_text() == "True"


def test_rank_0_waits_for_none_that_has_failed(gpus: VirtualGPU, tmp_path: Path) -> None:
    with pytest.raises(torch.multiprocessing.ProcessExitedException, match="exit code 3"):
        torch.multiprocessing.spawn(wait_for_the_other, args=(str(tmp_path),), nprocs=2)


@pytest.mark.skipif(sys.platform != "linux", reason="its C library is taken")
def test_rank_0_is_ended_where_no_python_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STUCK)
    ran = subprocess.run(
        [warm_python(), "-m", "vramlab", "run", "--gpu", "T4", "--count", "2", "train.py"],
        cwd=tmp_path,
        env=environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "rank 0 waits for another one, and is ended: process 0 terminated with" in ran.stderr
    assert "The program failed: ProcessExitedException: process 0 terminated with" in ran.stderr
