"""Streams and events: no time passes, but blocks belong to the stream they were allocated for."""

from __future__ import annotations

import pytest
import torch

from vramlab.gpu import VirtualGPU
from vramlab.units import MIB


def test_the_current_stream(gpu: VirtualGPU) -> None:
    default = torch.cuda.default_stream()
    assert torch.cuda.current_stream() == default
    assert default.stream_id == default.cuda_stream == 0
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    assert len({default, side, other}) == 3
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        with torch.cuda.stream(other):
            assert torch.cuda.current_stream() == other
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == side
        assert torch.cuda.current_stream() == side
    with side:
        assert torch.cuda.current_stream() == side
    assert torch.cuda.current_stream() == default
    torch.cuda.set_stream(other)
    assert torch.cuda.current_stream() == other
    torch.cuda.set_stream(default)


def test_streams_of_several_gpus(gpus: VirtualGPU) -> None:
    side = torch.cuda.Stream("cuda:1")
    assert side.device == torch.device("cuda:1")
    assert torch.cuda.current_device() == 0
    with torch.cuda.stream(side):
        assert torch.cuda.current_device() == 1
        assert torch.cuda.current_stream(1) == side
        assert torch.cuda.current_stream(0) == torch.cuda.default_stream(0)
        assert torch.zeros(3, device="cuda").device.index == 1
    assert torch.cuda.current_device() == 0
    assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)


def test_blocks_belong_to_streams(gpu: VirtualGPU) -> None:
    x = torch.zeros(MIB, device="cuda")
    del x
    with torch.cuda.stream(torch.cuda.Stream()):
        y = torch.zeros(MIB, device="cuda")  # cannot take the block of the default stream
    assert torch.cuda.memory_reserved() == 2 * 20 * MIB
    z = torch.zeros(MIB, device="cuda")  # can
    assert torch.cuda.memory_reserved() == 2 * 20 * MIB
    streams = sorted(segment["stream"] for segment in torch.cuda.memory_snapshot())
    assert streams[0] == 0
    assert streams[1] > 0
    del y, z


def test_record_stream_delays_the_reuse(gpu: VirtualGPU) -> None:
    x = torch.zeros(MIB, device="cuda")
    address = x.data_ptr()
    x.record_stream(torch.cuda.Stream())
    del x
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == 0
    assert stats["active_bytes.all.current"] == 4 * MIB  # until the events are queried
    y = torch.zeros(MIB, device="cuda")
    assert y.data_ptr() == address  # no time passes: the other stream was done by then
    assert torch.cuda.memory_stats()["active_bytes.all.current"] == 4 * MIB


def test_events(gpu: VirtualGPU) -> None:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    side = torch.cuda.Stream()
    first.record()
    assert first.query()
    side.wait_event(first)
    side.wait_stream(torch.cuda.current_stream())
    last.record(side)
    last.synchronize()
    side.synchronize()
    torch.cuda.synchronize()
    torch.cuda.synchronize("cuda:0")
    assert first.elapsed_time(last) == 0.0
    assert side.query()
    assert side.record_event().query()
    with pytest.raises(ValueError, match="enable_timing=True"):
        first.elapsed_time(side.record_event())
    with pytest.raises(ValueError, match="must be recorded"):
        first.elapsed_time(torch.cuda.Event(enable_timing=True))


def test_a_prefetching_loop(gpu: VirtualGPU) -> None:
    # as in many training scripts: the next batch is copied on a stream of its own
    copies = torch.cuda.Stream()
    host = torch.zeros(MIB).pin_memory()
    for _ in range(3):
        with torch.cuda.stream(copies):
            batch = host.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        batch.record_stream(torch.cuda.current_stream())
        batch.sum()
        del batch
    # the block of the batch returns to its stream each time: one segment for it
    segments = [s for s in torch.cuda.memory_snapshot() if s["stream"] != 0]
    assert [s["total_size"] for s in segments] == [20 * MIB]


def test_streams_have_workspaces_of_their_own() -> None:
    with VirtualGPU("A100-40GB", torch_version="2.13"):
        x = torch.zeros(64, 64, device="cuda")
        x @ x
        one = torch.cuda.memory_allocated()
        with torch.cuda.stream(torch.cuda.Stream()):
            x @ x
        workspace = (2 * 4096 + 8 * 16) * 1024  # CUBLAS_WORKSPACE_CONFIG's default, :4096:2:16:8
        assert torch.cuda.memory_allocated() - one == workspace
