"""A layer of experts: the same numbers as if every expert computed for every token."""

from __future__ import annotations

import torch
from torch.nn.functional import gelu

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
