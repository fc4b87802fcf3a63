"""xFormers' benchmark of plain attention beside its memory-efficient one, in 2022.

In the run of the forward pass the queries and two results are alive, which were compared before.

Source: xformers/benchmarks/benchmark_mem_eff_attention.py in facebookresearch/xformers, at
f78ba0ad and a0fb3753.
"""

from __future__ import annotations

import torch


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    scores = (query * query.shape[-1] ** -0.5 @ key.transpose(-2, -1)).softmax(-1)
    return torch.matmul(scores, value)


def forward(batch: int, length: int, width: int) -> dict[str, int]:
    """Measure the forward pass."""
    query = torch.rand(batch, length, width, device="cuda")
    _kept = [_attention(query, query, query) for _ in range(2)]
    torch.cuda.reset_peak_memory_stats()
    _attention(query, query, query)
    return {"peak": torch.cuda.max_memory_allocated()}


def backward(batch: int, length: int, width: int) -> dict[str, int]:
    """Measure the backward pass, when the query has a gradient already."""
    query = torch.rand(batch, length, width, device="cuda", requires_grad=True)
    result = _attention(query, query.clone(), query.clone())
    gradient = torch.ones_like(query)
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        result.backward(gradient, retain_graph=True)
    return {"peak": torch.cuda.max_memory_allocated()}
