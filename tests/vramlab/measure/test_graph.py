"""What autograd saves, read from graphs of real programs, whatever their stages are called."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from vramlab import VirtualGPU
from vramlab.measure import Category, Timeline, attribute, breakdown, graph, record_timeline
from vramlab.measure.saved_tensors import record_saved_tensors
from vramlab.units import MIB

SIDE = 1024
MATRIX_BYTES = SIDE * SIDE * 4  # 4 MiB: weights, inputs and activations alike


@pytest.fixture(autouse=True)
def gpu() -> Iterator[VirtualGPU]:
    with VirtualGPU("T4") as attached:
        yield attached


def layers(number: int = 1) -> nn.Sequential:
    """Layers that save the inputs of their products and the results of relu: the same tensors."""
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(SIDE, SIDE, bias=False), nn.ReLU()) for _ in range(number))
    ).to("cuda")


def batch() -> torch.Tensor:
    return torch.zeros(SIDE, SIDE, device="cuda")


def activations(timeline: Timeline) -> list[int]:
    """Sizes of all activations that there were, cuBLAS's workspaces left out."""
    return [
        block.size_bytes
        for block, found in zip(timeline.blocks, attribute(timeline), strict=True)
        if found.category is Category.ACTIVATIONS
    ]


def test_stages_may_be_called_anything() -> None:
    model, x = layers(2), batch()
    with record_timeline() as recording:
        recording.watch(model=model, inputs=x)
        for number in range(2):
            recording.stage(f"micro-batch {number}")
            model(x).sum().backward()
    timeline = recording.timeline
    assert activations(timeline) == 4 * [MATRIX_BYTES]  # two results of relu in each
    assert [timeline.stage_at(start + 1) for start, _ in timeline.backward_passes] == [
        "micro-batch 0",
        "micro-batch 1",
    ]
    assert breakdown(timeline, timeline.event_count).category_bytes[Category.GRADIENTS] == (
        2 * MATRIX_BYTES
    )


def test_data_that_waits_on_the_gpu_is_no_activation() -> None:
    model, x, kept = layers(), batch(), []
    with record_timeline() as recording:
        recording.watch(model=model, inputs=x)
        kept.append(batch())  # lives when backward begins, but autograd has not saved it
        model(x).sum().backward()
    assert activations(recording.timeline) == [MATRIX_BYTES]


def test_a_forward_pass_without_backward_has_activations() -> None:
    model, x, outputs = layers(), batch(), []
    with record_timeline() as recording:
        recording.watch(model=model, inputs=x)
        recording.stage("evaluate")
        outputs.append({"y": model(x)})
        recording.stage("evaluate again")
        with torch.no_grad():
            outputs.append({"y": model(x)})
        recording.stage(None)
        outputs.clear()
    assert activations(recording.timeline) == [MATRIX_BYTES]


def test_running_out_of_memory_in_forward_leaves_activations(gpu: VirtualGPU) -> None:
    model, x, recordings = layers(), batch(), []

    def forward() -> None:
        hidden = model(x)
        torch.cat([hidden] * 8192)  # 32 GiB on a T4

    with pytest.raises(torch.OutOfMemoryError), record_timeline() as recording:  # noqa: PT012
        recordings.append(recording)
        recording.watch(model=model, inputs=x)
        forward()
    assert activations(recordings[0].timeline) == [MATRIX_BYTES]


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_computes_again_are_activations(reentrant: bool) -> None:
    model, x = layers(2), batch().requires_grad_()
    with record_timeline() as recording:
        recording.watch(model=model, inputs=x)
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    timeline = recording.timeline
    born = [
        timeline.in_backward(block.born + 1)
        for block, found in zip(timeline.blocks, attribute(timeline), strict=True)
        if found.category is Category.ACTIVATIONS
    ]
    assert born == [True, True]  # two results of relu, none before the backward pass


def test_activations_on_the_host_are_activations_when_they_come_back() -> None:
    model, x = layers(), batch()
    with record_timeline() as recording:
        recording.watch(model=model, inputs=x)
        with torch.autograd.graph.save_on_cpu():
            loss = model(x).sum()
        loss.backward()
    timeline = recording.timeline
    backs = [
        timeline.in_backward(block.born + 1)
        for block, found in zip(timeline.blocks, attribute(timeline), strict=True)
        if found.category is Category.ACTIVATIONS
    ]
    assert backs
    assert all(backs)


def test_tensors_that_a_custom_function_keeps_on_its_context_are_activations() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.twice = x * 2
            return ctx.twice.clone()

        @staticmethod
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            return gradient * 2

    weight = torch.zeros(SIDE, SIDE, device="cuda", requires_grad=True)
    with record_timeline() as recording:
        Double.apply(weight).sum().backward()
    assert activations(recording.timeline) == [MATRIX_BYTES]


def test_hooks_that_wrap_what_is_saved_hide_nothing() -> None:
    model, x = layers(), batch()
    with record_timeline() as recording, record_saved_tensors(model, inputs=x):
        recording.watch(model=model, inputs=x)
        model(x).sum().backward()
    assert activations(recording.timeline) == [MATRIX_BYTES]


def test_recording_changes_no_memory() -> None:
    def step() -> list[int]:
        model, x = layers(2), batch().requires_grad_()
        readings = []
        with torch.autograd.graph.save_on_cpu():
            y = model[0](x)
        y = checkpoint(model[1], y, use_reentrant=False)
        readings.append(torch.cuda.memory_allocated())
        y.sum().backward()
        del y
        readings += [torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()]
        return readings

    step()  # cuBLAS's workspaces
    torch.cuda.reset_peak_memory_stats()
    alone = step()
    with record_timeline() as recording:
        recording.stage("all of it")
        assert step() == alone
    assert recording.timeline.unexplained_bytes == 0


def test_reading_variables_keeps_none_alive() -> None:
    def forward() -> None:
        y = layers()(batch())
        assert [id(tensor) for tensor in graph.roots_of_callers()] == [id(y)]
        held = torch.cuda.memory_allocated()
        del y
        assert torch.cuda.memory_allocated() < held

    forward()


def test_a_graph_is_read_from_any_of_its_tensors() -> None:
    model, x = layers(2), batch()
    loss = model(x).sum()
    gc.collect()
    saved = graph.saved_in([loss])
    # The product of layer 2 saves what relu saved, and x is no leaf of the graph.
    assert sorted({name for name, _ in saved}) == ["MmBackward0", "ReluBackward0"]
    assert sum(tensor.numel() * 4 for _, tensor in saved) == 3 * MATRIX_BYTES == 12 * MIB


def test_a_graph_is_read_from_the_place_that_a_tensor_came_from() -> None:
    # As PyTorch's pipelining has it from 2.15 on, which lets go of outputs that it has sent.
    edge = torch.autograd.graph.get_gradient_edge(layers(2)(batch()))
    (found,) = (root for root in graph.roots_of_callers() if root is edge)
    # Two results of relu, and the batch.
    assert sum(tensor.numel() * 4 for _, tensor in graph.saved_in([found])) == 3 * MATRIX_BYTES
    with record_timeline() as recording:
        torch.autograd.backward([edge], [torch.ones(SIDE, SIDE, device="cuda")])
    kept = breakdown(recording.timeline, 0).category_bytes
    assert kept[Category.ACTIVATIONS] == 3 * MATRIX_BYTES
