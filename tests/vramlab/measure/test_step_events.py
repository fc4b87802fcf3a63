"""What a step does is noted in order: whose work it is, on which stream, and who waits for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from vramlab import VirtualGPU
from vramlab.measure import record_collectives
from vramlab.measure.step_events import (
    StepEvent,
    StepMark,
    StepWait,
    StepWork,
    record_events,
)
from vramlab.programs.alone import alone

WIDTH, ROWS = 256, 64
WEIGHT_BYTES = 4 * WIDTH * WIDTH


def chain(layers: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(WIDTH, WIDTH, bias=False, device="cuda") for _ in range(layers))
    )


def layers_of(model: nn.Sequential) -> dict[str, nn.Module]:
    return {str(number): layer for number, layer in enumerate(model)}


def works(events: Sequence[StepEvent], kind: str) -> list[StepWork]:
    return [each for each in events if isinstance(each, StepWork) and each.kind == kind]


def batch() -> Tensor:
    return torch.zeros(ROWS, WIDTH, device="cuda")


def test_layers_keep_their_names_in_backward() -> None:
    with VirtualGPU("T4"):
        model, x = chain(2), batch()
        with record_events(layers_of(model)) as events:
            model(x).sum().backward()
            peak_bytes = torch.cuda.max_memory_allocated()
    products = [each for each in works(events, "operator") if each.name == "aten.mm"]
    # forward, then for layer 1 the gradients of weight and input, for layer 0 of its weight
    assert [(each.label, each.backward) for each in products] == [
        ("0", False),
        ("1", False),
        ("1", True),
        ("1", True),
        ("0", True),
    ]
    assert {each.flops for each in products} == {2 * ROWS * WIDTH * WIDTH}
    assert {each.dtype for each in products} == {"float32"}
    assert events[-1] == products[-1]
    assert products[-1].peak_bytes >= peak_bytes  # since the last event


@pytest.mark.parametrize("reshard", [False, True])
def test_the_most_of_all_events_is_what_torch_measures(reshard: bool) -> None:
    """So recording keeps nothing alive, such as tensors of collectives."""
    peaks = []
    for is_recorded in (False, True):
        with VirtualGPU("A100-40GB"), alone(8):
            model = chain(6)
            for layer in model:
                fully_shard(layer, reshard_after_forward=reshard)
            fully_shard(model, reshard_after_forward=reshard)
            torch.cuda.reset_peak_memory_stats()
            if is_recorded:
                with record_events() as events:
                    model(batch()).sum().backward()
                peaks.append(max(each.peak_bytes for each in events if isinstance(each, StepWork)))
            else:
                model(batch()).sum().backward()
                peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[0] == peaks[1]


def test_ddp_reduces_during_backward_and_waits_in_cpp() -> None:
    """Its copies out of buckets touch what an all-reduce writes: they wait for it."""
    with VirtualGPU("T4"), alone(4):
        parallel = DistributedDataParallel(chain(2), bucket_cap_mb=0.1)
        for _ in range(2):  # its buckets are rebuilt after the first step
            parallel(batch()).sum().backward()
        with record_events() as events, record_collectives() as collectives:
            parallel(batch()).sum().backward()
    reduced = works(events, "collective")
    assert [each.name for each in reduced] == [call.kind for call in collectives.calls]
    # around a ring of 4: 2 x 3/4 of each weight's gradient
    assert [each.moved_bytes for each in reduced] == [2 * 3 * WEIGHT_BYTES // 4] * 2
    first, last = (events.index(each) for each in reduced)
    assert any(each.name == "aten.mm" for each in works(events[first:last], "operator"))
    waited = [each.handle for each in events if isinstance(each, StepWait)]
    assert waited == [each.handle for each in reduced]


def test_fsdp_gathers_on_another_stream_and_the_default_one_waits() -> None:
    with VirtualGPU("A100-40GB"), alone(8):
        model = chain(2)
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        model(batch()).sum().backward()
        with record_events(layers_of(model)) as events:
            model(batch()).sum().backward()
    gathered = [each for each in works(events, "collective") if each.name == "all-gather"]
    # both for forward, then the last again, as it was freed after forward, and the first
    assert [each.label for each in gathered] == [
        f"FSDP::all_gather ({layer})" for layer in (0, 1, 1, 0)
    ]
    assert {each.moved_bytes for each in gathered} == {7 * WEIGHT_BYTES // 8}
    assert 0 not in {each.stream for each in gathered}
    marks = {each.handle: each.stream for each in events if isinstance(each, StepMark)}
    waits = [each for each in events if isinstance(each, StepWait)]
    # the default stream waits for a mark of the stream that gathers, before each layer
    of_gathers = [
        each for each in waits if each.stream == 0 and marks.get(each.handle) == gathered[0].stream
    ]
    assert len(of_gathers) == len(gathered)


def test_copies_to_the_host_say_whether_python_waits() -> None:
    with VirtualGPU("T4"):
        x, pinned = batch(), torch.empty(ROWS, WIDTH, pin_memory=True)
        with record_events() as events:
            pinned.copy_(x, non_blocking=True)
            x.cpu()
            x.copy_(pinned, non_blocking=True)
    assert [
        (each.kind, each.moved_bytes, each.blocks) for each in events if isinstance(each, StepWork)
    ] == [
        ("to host", 4 * ROWS * WIDTH, False),
        ("to host", 4 * ROWS * WIDTH, True),
        ("to GPU", 4 * ROWS * WIDTH, False),
    ]


def test_sends_and_receives_have_a_peer() -> None:
    with VirtualGPU("T4"), alone(4, rank=1):
        x = batch()
        with record_events() as events:
            sent = dist.isend(x, 2)
            received = dist.irecv(torch.empty_like(x), 0)
            assert sent is not None
            assert received is not None
            received.wait()
            sent.wait()
    passed = [each for each in events if isinstance(each, StepWork)]
    assert [(each.kind, each.peer, each.moved_bytes) for each in passed] == [
        ("send", 2, 4 * ROWS * WIDTH),
        ("receive", 0, 4 * ROWS * WIDTH),
    ]
    waits = [each.handle for each in events if isinstance(each, StepWait)]
    assert waits == [passed[1].handle, passed[0].handle]


def test_everything_is_put_back() -> None:
    with VirtualGPU("T4"), alone(4):
        before = dist.Work.wait, torch.cuda.Event.record, torch.cuda.Event.wait
        with record_events():
            dist.all_reduce(batch())
            assert dist.Work.wait is not before[0]
        assert (dist.Work.wait, torch.cuda.Event.record, torch.cuda.Event.wait) == before
