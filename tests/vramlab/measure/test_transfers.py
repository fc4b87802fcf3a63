"""Copies between host and GPU are counted once each, in the bytes that cross."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vramlab import VirtualGPU
from vramlab.measure import record_transfers
from vramlab.measure.transfers import Transfer

both_backing_devices = pytest.mark.parametrize("values", [False, True], ids=["no values", "values"])


@both_backing_devices
def test_both_ways(values: bool) -> None:
    with VirtualGPU("T4", values=values):
        x = torch.zeros(100, 10)
        with record_transfers() as transfers:
            there = x.to("cuda")
            back = there.cpu()
        assert back.device.type == "cpu"
    # 1000 x 4 B, each way
    assert transfers.copies == [
        Transfer("to GPU", 4000, pinned=False, non_blocking=False),
        Transfer("to host", 4000, pinned=False, non_blocking=False),
    ]
    assert (transfers.to_gpu_bytes, transfers.to_host_bytes) == (4000, 4000)
    assert transfers.waited_for_bytes == 8000


@both_backing_devices
def test_copies_on_one_side_are_none(values: bool) -> None:
    with VirtualGPU("T4", count=2, values=values):
        x = torch.zeros(100, device="cuda")
        host = torch.zeros(100)
        with record_transfers() as transfers:
            x.half()
            x.clone()
            x.copy_(x.half())
            x.to("cuda:1")
            host.half()
            host.copy_(host.double())
    assert transfers.copies == []


@both_backing_devices
def test_only_pinned_memory_is_not_waited_for(values: bool) -> None:
    with VirtualGPU("T4", values=values):
        pageable, pinned = torch.zeros(100), torch.zeros(100).pin_memory()
        with record_transfers() as transfers:
            pageable.to("cuda", non_blocking=True)
            pinned.to("cuda")
            pinned.to("cuda", non_blocking=True)
    assert [(copy.pinned, copy.non_blocking) for copy in transfers.copies] == [
        (False, False),
        (True, False),
        (True, True),
    ]
    assert transfers.waited_for_bytes == 2 * 400


@pytest.mark.parametrize(
    ("non_blocking", "to_gpu_bytes", "to_host_bytes"),
    [
        # converted on the host: float16 crosses, 2 B each, both ways
        (False, 2000, 2000),
        # converted on the GPU: float32 crosses, 4 B each, both ways
        (True, 4000, 4000),
    ],
)
def test_a_copy_that_converts_crosses_in_one_dtype(
    non_blocking: bool, to_gpu_bytes: int, to_host_bytes: int
) -> None:
    with VirtualGPU("T4"):
        on_gpu = torch.zeros(1000, dtype=torch.float16, device="cuda")
        on_host = torch.zeros(1000).pin_memory()
        with record_transfers() as transfers:
            on_gpu.copy_(on_host, non_blocking=non_blocking)
            on_host.copy_(on_gpu, non_blocking=non_blocking)
    assert transfers.to_gpu_bytes == to_gpu_bytes
    assert transfers.to_host_bytes == to_host_bytes


def test_slices_broadcasts_and_lists() -> None:
    with VirtualGPU("T4"):
        target = torch.zeros(10, 10, device="cuda")
        with record_transfers() as transfers:
            target[2:4] = torch.ones(10)  # a row of the host, made two before it crosses
            torch._foreach_copy_([target, target], [torch.zeros(10, 10), torch.zeros(10, 10)])
    # 2 x 10 x 4 B; 2 x 100 x 4 B
    assert [copy.size_bytes for copy in transfers.copies] == [80, 400, 400]


def test_a_value_that_is_read_crosses_too() -> None:
    with VirtualGPU("T4", values=True):
        loss = torch.ones(3, device="cuda").sum()
        with record_transfers() as transfers:
            assert loss.item() == 3.0
    assert transfers.copies == [Transfer("to host", 4, pinned=False, non_blocking=False)]


@both_backing_devices
@pytest.mark.parametrize("pin_memory", [False, True])
def test_what_autograd_saves_on_the_host_goes_there_and_comes_back(
    values: bool, pin_memory: bool
) -> None:
    with VirtualGPU("T4", values=values):
        layers = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)).to("cuda")
        x = torch.zeros(8, 16, device="cuda")
        with record_transfers() as transfers:
            with torch.autograd.graph.save_on_cpu(pin_memory=pin_memory):
                loss = layers(x).square().mean()
            there = list(transfers.copies)
            loss.backward()
    # x, ReLU's output for itself and again for the second layer, the second weight, its output
    assert [copy.size_bytes for copy in there] == [512, 512, 512, 1024, 512]
    assert {copy.direction for copy in there} == {"to host"}
    assert transfers.to_gpu_bytes == transfers.to_host_bytes == 3072
    # save_on_cpu fetches from pinned memory without waiting; since 2.12 it copies there so, too.
    to_host_waits = not pin_memory or torch.__version__ < (2, 12)
    assert transfers.waited_for_bytes == to_host_waits * 3072 + (not pin_memory) * 3072
