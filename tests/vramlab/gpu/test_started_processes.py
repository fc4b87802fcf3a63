"""`torch.multiprocessing.spawn`: rank 0 here, the others in processes with a GPU of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.multiprocessing
from markdown_blocks import environment
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
