"""A layer of experts: the same numbers as if every expert computed for every token."""

from __future__ import annotations

import torch
from torch.nn.functional import gelu

from vramlab import VirtualGPU
from vramlab_course.lessons.l26_mixture_of_experts.experiment import (
    dense_growth_bytes,
    layer_parts,
)
from vramlab_course.lessons.l26_mixture_of_experts.formulas import MoELayer
from vramlab_course.lessons.l26_mixture_of_experts.moe import MoE, crowd, spread


def test_experts_compute_for_their_tokens_what_all_would() -> None:
    torch.manual_seed(0)
    layer = MoE(width=8, inner=16, experts=4).double()
    x = torch.randn(12, 8, dtype=torch.float64)
    for chosen in (None, spread(12, 4), crowd(12, 4, 0.75)):
        scores = layer.router(x).softmax(-1)
        best = scores.topk(2).indices if chosen is None else chosen
        expected = torch.zeros_like(x)
        for token in range(12):
            for expert in best[token].tolist():
                answer = gelu(x[token] @ layer.up[expert].T) @ layer.down[expert].T
                expected[token] += scores[token, expert] * answer
        assert torch.allclose(layer(x, chosen), expected, rtol=1e-12, atol=1e-12)


def test_an_even_spread_and_a_crowd() -> None:
    assert spread(4, 4).tolist() == [[0, 1], [2, 3], [0, 1], [2, 3]]
    # 3 of 4 tokens with expert 0; the other choices go round among 1, 2, 3
    assert crowd(4, 4, 0.75).tolist() == [[0, 2], [0, 1], [0, 3], [1, 2]]
    counts = crowd(4096, 8, 0.5).flatten().bincount().tolist()
    assert (counts[0], sum(counts)) == (2048, 8192)
    assert all(len(set(pair)) == 2 for pair in crowd(100, 4, 0.5).tolist())


def test_a_dense_layer_saves_its_hidden_tensors_alone() -> None:
    """64 rows of 256 before and after GELU, and an output of 128, in float32."""
    with VirtualGPU("A100-40GB"):
        assert dense_growth_bytes(64, 128, 256) == 4 * 64 * (256 + 256 + 128)
        dense = layer_parts(64, 128, 256, 1, 0)
        experts = layer_parts(64, 128, 256, 8, 2)
    assert list(dense) == list(experts)
    assert sum(dense.values()) == 4 * 64 * (256 + 256 + 128)
    assert sum(experts.values()) == MoELayer(64, 128, 256, 8, 2).growth_bytes
