"""Timelines recorded on a virtual GPU."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.measure import (
    Category,
    IncompleteTraceError,
    Recording,
    attribute,
    breakdown,
    code_lines,
    record_timeline,
)
from vramlab.measure.tensors import storage_addresses
from vramlab.units import MIB


@pytest.fixture(autouse=True)
def gpu() -> Iterator[VirtualGPU]:
    with VirtualGPU("T4") as attached:
        yield attached


def take(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def train_one_step(recording: Recording) -> None:
    """A hidden layer of 1024 with weights of 4 MiB, batch 2048 (8 MiB), one output."""
    model = torch.nn.Sequential(
        torch.nn.Linear(1024, 1024, bias=False), torch.nn.ReLU(), torch.nn.Linear(1024, 1)
    ).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.zeros(2048, 1024, device="cuda")
    recording.watch(model=model, optimizer=optimizer, inputs={"x": x})
    recording.stage("forward")
    loss = model(x).sum()
    recording.stage("backward")
    loss.backward()
    recording.stage("optimizer step")
    optimizer.step()
    optimizer.zero_grad()
    recording.stage(None)


def test_a_training_step_is_explained_to_the_byte() -> None:
    with record_timeline() as recording:
        train_one_step(recording)
    timeline = recording.timeline
    assert timeline.unexplained_bytes == 0
    assert all(block.size_known for block in timeline.blocks)
    assert timeline.allocated_bytes[-1] == torch.cuda.memory_allocated()
    assert timeline.reserved_bytes[-1] == torch.cuda.memory_reserved()
    assert [stage.name for stage in timeline.stages] == ["forward", "backward", "optimizer step"]


def test_tensors_are_named_although_some_are_gone_at_the_end() -> None:
    with record_timeline() as recording:
        train_one_step(recording)
    timeline = recording.timeline
    labels = {
        attribution.label: (attribution.category, block.size_bytes)
        for block, attribution in zip(timeline.blocks, attribute(timeline), strict=True)
        if attribution.evidence == "address"
    }
    assert labels == {
        "0.weight": (Category.PARAMETERS, 4 * MIB),  # 1024 * 1024 * 4 B
        "2.weight": (Category.PARAMETERS, 4096),  # 1024 * 4 B
        "2.bias": (Category.PARAMETERS, 512),
        "input.x": (Category.INPUTS, 8 * MIB),  # 2048 * 1024 * 4 B
        "saved by AddmmBackward0": (Category.ACTIVATIONS, 8 * MIB),  # and by ReLU: its result
        "0.weight.grad": (Category.GRADIENTS, 4 * MIB),
        "2.weight.grad": (Category.GRADIENTS, 4096),
        "2.bias.grad": (Category.GRADIENTS, 512),
        "0.weight.momentum_buffer": (Category.OPTIMIZER_STATES, 4 * MIB),
        "2.weight.momentum_buffer": (Category.OPTIMIZER_STATES, 4096),
        "2.bias.momentum_buffer": (Category.OPTIMIZER_STATES, 512),
    }


def test_activations_are_what_the_forward_pass_leaves_for_the_backward_pass() -> None:
    with record_timeline() as recording:
        train_one_step(recording)
    timeline = recording.timeline
    (backward,) = (stage for stage in timeline.stages if stage.name == "backward")
    at = breakdown(timeline, backward.start)
    # what ReLU saves, its output: 2048 * 1024 * 4 B. (The first layer's output is gone, and so is
    # the second one's; the sum lives by its name, but backward does not need it.)
    assert at.category_bytes[Category.ACTIVATIONS] == 8 * MIB
    assert at.category_bytes[Category.TEMPORARIES] == 512
    assert sum(at.category_bytes.values()) == at.moment.allocated_bytes


def test_lines_of_this_file_hold_the_memory() -> None:
    with record_timeline() as recording:
        kept = [take(6) for _ in range(2)]
        kept.append(take(3))
    lines = code_lines(recording.timeline.peak())
    assert [(line.size_bytes, line.block_count) for line in lines] == [(15 * MIB, 3)]
    assert lines[0].source.startswith("return torch.empty(mib * MIB")
    assert len(kept) == 3


def test_what_was_there_before_is_taken_over() -> None:
    before = take(10)
    passing = take(4)
    with record_timeline() as recording:
        del passing
        after = take(2)
    timeline = recording.timeline
    assert timeline.allocated_bytes[0] == 14 * MIB
    assert timeline.allocated_bytes[-1] == 12 * MIB
    # Those from before are in the order of their addresses, which the driver decides.
    *known, new = [(block.size_bytes // MIB, block.born < 0) for block in timeline.blocks]
    assert sorted(known) == [(4, True), (10, True)]
    assert new == (2, False)
    assert before.numel() + after.numel() == 12 * MIB


def test_views_belong_to_the_block_of_their_storage() -> None:
    with record_timeline() as recording:
        both = torch.zeros(2, MIB, device="cuda")
        recording.watch(inputs=[both[1]])
    assert attribute(recording.timeline)[0].label == "input[0]"


def test_sparse_tensors_are_their_indices_and_values() -> None:
    indices = torch.zeros(1, 64, dtype=torch.long, device="cuda")
    values = torch.zeros(64, 256, device="cuda")
    sparse = SimpleNamespace(
        layout=torch.sparse_coo, _indices=lambda: indices, _values=lambda: values
    )
    addresses = list(storage_addresses(cast(torch.Tensor, sparse), device=0))
    assert addresses == [indices.data_ptr(), values.data_ptr()]


def test_a_recording_keeps_nothing_alive() -> None:
    with record_timeline() as recording:
        model = torch.nn.Linear(8, 8).to("cuda")
        optimizer = torch.optim.Adam(model.parameters())
        x = take(2)
        gone = weakref.ref(model)
        recording.watch(model=model, optimizer=optimizer, inputs=x)
        del model, optimizer, x
        gc.collect()
        assert gone() is None
        assert torch.cuda.memory_allocated() == 0


def test_hooks_on_the_optimizer_are_removed() -> None:
    model = torch.nn.Linear(8, 8).to("cuda")
    optimizer = torch.optim.SGD(model.parameters())
    with record_timeline() as recording:
        recording.watch(optimizer=optimizer)
        assert len(optimizer._optimizer_step_pre_hooks) == 1
    assert len(optimizer._optimizer_step_pre_hooks) == 0
    assert len(optimizer._optimizer_step_post_hooks) == 0


def test_out_of_memory_leaves_a_timeline_behind() -> None:
    recordings = []
    with pytest.raises(torch.OutOfMemoryError), record_timeline() as recording:  # noqa: PT012
        recordings.append(recording)
        kept = take(8)
        take(1024 * 1024)
    timeline = recordings[0].timeline
    (failure,) = timeline.out_of_memory
    assert failure.requested_bytes == 1024 * 1024 * MIB
    assert timeline.peak_bytes == 8 * MIB
    assert kept.numel() == 8 * MIB


def test_a_failed_request_belongs_to_the_stage_that_made_it() -> None:
    with record_timeline() as recording:
        recording.stage("too much")
        with pytest.raises(torch.OutOfMemoryError):
            take(1024 * 1024)
        recording.stage("less")
        kept = take(8)
    timeline = recording.timeline
    (failure,) = timeline.out_of_memory
    assert timeline.stage_at(failure.position) == "too much"
    assert timeline.stage_at(timeline.event_count) == "less"
    assert kept.numel() == 8 * MIB


def test_a_program_that_switches_the_history_off_is_told_so() -> None:
    with record_timeline() as recording:
        torch.cuda.memory._record_memory_history(None)
        kept = take(2)
    with pytest.raises(IncompleteTraceError, match="holds 0 allocations and frees, but torch cou"):
        _ = recording.timeline
    assert kept.numel() == 2 * MIB


def test_a_program_that_resets_the_counters_is_told_so() -> None:
    kept = take(2)
    with record_timeline() as recording:
        torch.cuda.reset_accumulated_memory_stats()
    with pytest.raises(IncompleteTraceError, match="reset_accumulated_memory_stats"):
        _ = recording.timeline
    assert kept.numel() == 2 * MIB
