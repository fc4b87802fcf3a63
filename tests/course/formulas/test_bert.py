"""What BERT keeps and where a step of it peaks: arithmetic by hand, and against the virtual GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.measure import Timeline, record_timeline
from vramlab.measure.environment import gpu_environment
from vramlab.units import KIB, MIB
from vramlab_course.formulas import bert
from vramlab_course.formulas.bert import Bert

HIDDEN = 32 * 512 * 768 * 4  # 48 MiB
SCORES = 32 * 12 * 512 * 512 * 4  # 384 MiB
INNER = 32 * 512 * 3072 * 4  # 192 MiB
STATISTICS = 2 * 32 * 512 * 4  # mean and scale of a layer norm

SMALL = Bert(layers=2)

Mode = tuple[bool, bert.Attention]


def by_part(**how: Any) -> dict[str, int]:
    sums: dict[str, int] = {}
    for tensor in Bert().kept(32, 512, **how):
        sums[tensor.part] = sums.get(tensor.part, 0) + tensor.size_bytes
    return sums


def test_the_documents_forward_pass_part_by_part() -> None:
    parts = by_part()
    assert parts == {
        bert.REST: 512 * 8 + 32 * 768 * 4,  # token types; pooler_output
        bert.NORMS: 25 * (2 * HIDDEN + STATISTICS),  # the embeddings' and two in each layer
        bert.QUERY_KEY_VALUE: 12 * 3 * HIDDEN,
        bert.SOFTMAX: 12 * SCORES,
        bert.CONTEXT: 12 * HIDDEN,
        bert.FEED_FORWARD: 12 * 2 * INNER,
    }
    # 13931.34375 MiB in the document, with a workspace of 8.125 MiB, without the token types
    assert sum(parts.values()) == (13931.34375 - 8.125) * MIB + 4 * KIB
    assert sum(parts.values()) == Bert().forward_bytes(32, 512)


def test_train_mode_adds_masks_and_the_dropped_softmax() -> None:
    evaluated, trained = by_part(), by_part(train=True)
    assert trained.pop(bert.MASKS) == 25 * HIDDEN // 4
    assert trained.pop(bert.DROPPED_SOFTMAX) == 12 * (SCORES + SCORES // 4)
    assert trained == evaluated
    # 12 x 480 MiB + 25 x 12 MiB
    more = Bert().forward_bytes(32, 512, train=True) - Bert().forward_bytes(32, 512)
    assert more == 6060 * MIB


def test_the_memory_efficient_kernel_keeps_a_number_for_each_row() -> None:
    parts = by_part(attention="efficient")
    assert bert.SOFTMAX not in parts
    assert parts[bert.SUMS] == 12 * 32 * 12 * 512 * 4
    # 100 rows are rounded up to 128: 2 x 12 x 128 x 4 B = 24 x 512 B
    kept = Bert(layers=1).kept(2, 100, attention="efficient")
    assert [tensor.size_bytes for tensor in kept if tensor.part == bert.SUMS] == [12_288]


def test_every_layer_keeps_the_same_in_the_same_places() -> None:
    kept = Bert().kept(4, 128, train=True)
    layers: dict[str, list[Any]] = {
        place: [] for place in (f"layer {number}" for number in range(12))
    }
    for tensor in kept:
        if tensor.place in layers:
            layers[tensor.place].append((tensor.module, tensor.part, tensor.size_bytes))
    assert all(layers[place] == layers["layer 0"] for place in layers)
    assert {part for _, part, _ in layers["layer 0"]} <= set(bert.PARTS)
    assert {tensor.place for tensor in kept} - set(layers) == {"embeddings", "pooler"}


def test_half_of_the_peak_by_hand() -> None:
    moments = Bert().backward_moments(32, 512, lambda rows, columns: 0)
    held = Bert().held_before_backward_bytes(32, 512)
    assert held == Bert().forward_bytes(32, 512) - HIDDEN - 32 * 768 * 4 + 512
    # The gradients: of the loss; of the layer norm's input, instead of it; of GELU's output; of the
    # layer norm's two parameters, of the weight and of the bias.
    weights = 2 * 3072 + 3072 * 768 * 4 + 3072
    assert moments[bert.SECOND_LINEAR] == (
        held + 512 + HIDDEN - HIDDEN - STATISTICS + INNER + weights
    )


@pytest.fixture(scope="module", params=[(False, "eager"), (True, "eager"), (True, "efficient")])
def steps(request: pytest.FixtureRequest) -> tuple[Mode, dict[tuple[int, int], Timeline], Any]:
    """Forward and backward of a small BERT, as timelines, by batch and sequence."""
    from transformers import BertConfig, BertModel

    train, attention = request.param
    implementation = "eager" if attention == "eager" else "sdpa"
    settings = {"attn_implementation": implementation, "num_hidden_layers": SMALL.layers}
    timelines = {}
    with VirtualGPU("A100-40GB"):
        with torch.device("cuda"):
            model = BertModel(BertConfig.from_dict(settings)).train(train)
        step(model, 2, 128)  # workspaces come here
        for batch, sequence in ((4, 512), (6, 300), (16, 512)):
            timelines[batch, sequence] = step(model, batch, sequence)
        buffers = gpu_environment().column_sum_bytes
        del model
    return request.param, timelines, buffers


def step(model: torch.nn.Module, batch: int, sequence: int) -> Timeline:
    torch.cuda.empty_cache()
    with record_timeline() as recording:
        tokens = torch.zeros((batch, sequence), dtype=torch.long, device="cuda")
        recording.stage("forward")
        outputs = model(tokens)
        recording.stage("loss")
        loss = outputs.last_hidden_state.sum()
        del outputs
        recording.stage("backward")
        loss.backward()
        recording.stage(None)
    model.zero_grad()
    return recording.timeline


def less_remainders(timeline: Timeline, position: int) -> int:
    """Allocated bytes without what was not split off of blocks."""
    return timeline.allocated_bytes[position] - timeline.at(position).remainder_bytes


def test_formulas_are_what_the_virtual_gpu_measures(steps: Any) -> None:
    (train, attention), timelines, buffers = steps
    how: dict[str, Any] = {"train": train, "attention": attention}
    for (batch, sequence), timeline in timelines.items():
        forward, loss, backward = timeline.stages
        before = less_remainders(timeline, forward.start)
        after = less_remainders(timeline, forward.end)
        assert after - before == SMALL.forward_bytes(batch, sequence, **how)
        held = less_remainders(timeline, loss.end) - before
        assert held == SMALL.held_before_backward_bytes(batch, sequence, **how)
        peak = max(less_remainders(timeline, p) for p in range(backward.start, backward.end + 1))
        moments = SMALL.backward_moments(batch, sequence, buffers, **how)
        assert peak - before == max(moments.values()), (batch, sequence, moments)
