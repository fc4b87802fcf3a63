"""Programs that log their GPU can call `nvidia-smi` on machines without it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import torch

from vramlab.gpu import VirtualGPU
from vramlab.report.running.children import Children

pytestmark = pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="it is there")


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with VirtualGPU("T4", 2), Children([]):
        yield


def output_of(command: str | list[str]) -> str:
    return subprocess.check_output(command, text=True, shell=isinstance(command, str))


def test_what_is_queried_is_answered_for_each_gpu() -> None:
    total_mib = 15 * 1024  # what nvidia-smi says of a T4; CUDA has 15,095 MiB of it
    assert torch.cuda.get_device_properties(0).total_memory // 2**20 < total_mib
    query = ["nvidia-smi", "--query-gpu=index,memory.total,fan.speed", "--format=csv,noheader"]
    assert output_of(query) == f"0, {total_mib} MiB, [N/A]\n1, {total_mib} MiB, [N/A]\n"
    assert output_of("nvidia-smi --query-gpu=memory.total --format=csv,nounits | tail -n 1") == (
        f"{total_mib}\n"
    )


def test_one_gpu_can_be_named() -> None:
    for words in ("-i 1", "--id=1", "-i=1"):
        query = f"nvidia-smi {words} --query-gpu=index --format=csv,noheader"
        assert output_of(query) == "1\n", words
    assert output_of("nvidia-smi -i 0,1 --query-gpu=index --format=csv,noheader") == "0\n1\n"
    assert output_of("nvidia-smi -L -i 7") == "No devices were found\n"


def test_used_memory_is_what_the_driver_counts() -> None:
    kept = torch.ones(2**20, device="cuda:1")
    free_bytes, total_bytes = torch.cuda.mem_get_info(1)
    used = output_of("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits").split()
    assert used == ["0", f"{(total_bytes - free_bytes) // 2**20}"]
    del kept


def test_without_a_query_it_names_the_gpus() -> None:
    name = torch.cuda.get_device_name(0)
    assert output_of(["nvidia-smi"]).count(f"{name} (virtual)") == 2
    first, second = (f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(2))
    assert output_of("nvidia-smi -L") == (
        f"GPU 0: {name} (UUID: {first})\nGPU 1: {name} (UUID: {second})\n"
    )
    query = "nvidia-smi -i 1 --query-gpu=uuid,driver_version --format=csv,noheader"
    assert output_of(query) == f"{second}, 580.65.06\n"


def test_processes_are_those_of_gpus_that_are_used() -> None:
    query = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits"
    assert output_of(query) == ""
    kept = torch.ones(2**20, device="cuda:1")
    free_bytes, total_bytes = torch.cuda.mem_get_info(1)
    assert output_of(query) == f"{os.getpid()}, {(total_bytes - free_bytes) // 2**20}\n"
    del kept
