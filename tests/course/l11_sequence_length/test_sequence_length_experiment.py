"""Length, padding and retention: what the experiments of lesson 11 rest on."""

from __future__ import annotations

import itertools

import pytest
import torch

import vramlab
from vramlab_course import experiments
from vramlab_course.experiments import FigureVerdict
from vramlab_course.lessons.l11_sequence_length.attention_formulas import KINDS, kept_bytes
from vramlab_course.lessons.l11_sequence_length.padding_experiment import (
    PackableLayer,
    in_buckets,
    text_lengths,
)
from vramlab_course.lessons.l11_sequence_length.retention import Retention
from vramlab_course.lessons.l11_sequence_length.sequence_length_experiment import (
    can_run,
    chosen_by_torch,
    measure_attention,
)
from vramlab_course.rules import RULES

NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


@pytest.mark.parametrize("dtype", NAMES, ids=NAMES.get)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_every_kind_keeps_what_is_predicted(dtype: torch.dtype, dropout: float) -> None:
    measured = {}
    # Expandable segments leave no unsplit remainders.
    with vramlab.VirtualGPU(
        "A100-40GB", torch_version="2.13", alloc_conf="expandable_segments:True"
    ):
        for kind, length in itertools.product(KINDS, (96, 100, 640)):
            if can_run(kind, dtype, training=True, dropout=dropout):
                memory = measure_attention(
                    kind, length, batch=2, heads=3, dtype=dtype, dropout=dropout
                )
                measured[kind, length] = memory.kept_bytes
    fused = 0 if dtype is torch.float32 else 1 if dropout else 2  # cuDNN refuses a dropout of 0.1
    assert len({kind for kind, _ in measured}) == 3 + fused
    for (kind, length), size_bytes in measured.items():
        expected_bytes = kept_bytes(kind, 2, 3, length, 64, NAMES[dtype], dropout > 0)
        assert size_bytes == expected_bytes, (kind, length)


@pytest.mark.parametrize(
    ("gpu", "dtype", "kinds"),
    [
        ("T4", torch.float16, {"step by step", "math", "memory-efficient"}),
        ("T4", torch.bfloat16, {"step by step", "math"}),
        ("A100-40GB", torch.float32, {"step by step", "math", "memory-efficient"}),
        ("A100-40GB", torch.bfloat16, set(KINDS)),
    ],
)
def test_which_gpu_runs_what(gpu: str, dtype: torch.dtype, kinds: set[str]) -> None:
    with vramlab.VirtualGPU(gpu):
        assert {kind for kind in KINDS if can_run(kind, dtype, True, 0.0)} == kinds


@pytest.mark.parametrize(
    ("gpu", "dtype", "dropout", "kind"),
    [
        ("T4", torch.float16, 0.0, "memory-efficient"),
        ("T4", torch.bfloat16, 0.0, "math"),
        ("A100-40GB", torch.float32, 0.0, "memory-efficient"),
        ("A100-40GB", torch.bfloat16, 0.1, "flash"),
        ("H100", torch.bfloat16, 0.0, "cuDNN"),
        ("H100", torch.bfloat16, 0.1, "flash"),
    ],
)
def test_what_torch_chooses_is_read_from_the_graph(
    gpu: str, dtype: torch.dtype, dropout: float, kind: str
) -> None:
    with vramlab.VirtualGPU(gpu, torch_version="2.13"):
        assert chosen_by_torch(dtype, dropout) == kind


def test_without_a_backward_pass_only_the_output_stays() -> None:
    with vramlab.VirtualGPU("A100-40GB"):
        memory = measure_attention("step by step", 512, training=False)
    assert memory.kept_bytes == 12 * 512 * 64 * 2
    assert memory.backward_peak_bytes == 0


def test_in_eval_mode_the_coefficient_is_that_of_the_softmax_alone() -> None:
    with vramlab.VirtualGPU("A100-40GB", alloc_conf="", torch_version=RULES):
        outcome = experiments.run("bert-sequence-fit", lengths=(512, 1024, 1536), training=False)
    found = outcome.finding("bert-sequence-fit", "a, for each squared token")
    assert found.predicted == 12 * 12 * 4 / 2**20
    assert found.measured == pytest.approx(found.predicted, rel=0.05)  # unsplit remainders
    assert found.verdict is FigureVerdict.OTHER_CONDITIONS
    for stage in outcome.result.stages:
        assert stage.allocated_after_bytes == stage.expectations[0].predicted_bytes


@pytest.mark.parametrize("training", [True, False])
def test_with_a_fused_kernel_there_is_no_square(training: bool) -> None:
    no_remainders = "expandable_segments:True"
    with vramlab.VirtualGPU("T4", alloc_conf=no_remainders, torch_version=RULES):
        outcome = experiments.run(
            "bert-sequence-fit", lengths=(512, 1000, 1536), training=training, fused=True
        )
    found = outcome.finding("bert-sequence-fit", "a, for each squared token")
    assert found.predicted == 0
    assert abs(found.measured) < 1e-6  # blocks of 512 B, and rows filled up to 32
    for stage in outcome.result.stages:
        assert stage.allocated_after_bytes == stage.expectations[0].predicted_bytes


def test_packed_texts_come_out_as_padded_ones() -> None:
    torch.manual_seed(0)
    layer = PackableLayer(width=32, heads=2)
    lengths = [8, 24, 16]
    texts = [torch.randn(length, 32) for length in lengths]
    packed = layer.packed(torch.cat(texts), lengths)
    filled = torch.full((3, 24, 32), 100.0)  # whatever stands in the padding
    for row, text in zip(filled, texts, strict=True):
        row[: len(text)] = text
    padded = layer.padded(filled, lengths)
    cut = torch.cat([row[:length] for row, length in zip(padded, lengths, strict=True)])
    assert torch.allclose(packed, cut, atol=1e-5)


def test_buckets_hold_every_text_once() -> None:
    lengths = text_lengths()
    buckets = in_buckets(lengths, 4)
    assert [len(bucket) for bucket in buckets] == [8, 8, 8, 8]
    assert sorted(itertools.chain(*buckets)) == sorted(lengths)
    assert all(max(one) <= min(next_) for one, next_ in itertools.pairwise(buckets))


def test_three_forms_of_retention_are_one() -> None:
    torch.manual_seed(0)
    layer = Retention(width=32, heads=4)
    x = torch.randn(2, 24, 32)
    parallel, nothing = layer(x, "parallel")
    recurrent, state = layer(x, "recurrent")
    chunkwise, same_state = layer(x, "chunkwise", chunk=8)
    assert nothing is None
    assert parallel.abs().max() > 0.01
    assert torch.allclose(parallel, recurrent, atol=1e-5)
    assert torch.allclose(parallel, chunkwise, atol=1e-5)
    assert torch.allclose(state, same_state, atol=1e-5)
    # And their gradients.
    gradients = [
        torch.autograd.grad(output.square().sum(), layer.inputs.weight)[0]
        for output in (parallel, recurrent, chunkwise)
    ]
    assert torch.allclose(gradients[0], gradients[1], rtol=1e-3, atol=1e-4)
    assert torch.allclose(gradients[0], gradients[2], rtol=1e-3, atol=1e-4)


def test_a_text_can_be_cut_where_a_state_is_passed_on() -> None:
    torch.manual_seed(0)
    layer = Retention(width=32, heads=4)
    x = torch.randn(1, 16, 32)
    whole, _ = layer(x, "recurrent")
    first, state = layer(x[:, :8], "chunkwise", chunk=4)
    second, _ = layer(x[:, 8:], "recurrent", state=state)
    assert torch.allclose(whole, torch.cat([first, second], dim=1), atol=1e-5)
    with pytest.raises(ValueError, match="has no use for a state"):
        layer(x[:, 8:], "parallel", state=state)
