"""Lesson 11: one attention layer, by hand, by PyTorch's module and by transformers' BERT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from vramlab_course.libraries.measuring import library, meet_cublas, step_sizes
from vramlab_course.libraries.results import LibraryRow, versioned

TEXTS, LENGTH, WIDTH, HEADS = 4, 2048, 768, 12


class _ByHand(nn.Module):
    """Attention with its projections, and nothing else."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.query_key_value, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.view(TEXTS, LENGTH, HEADS, -1).transpose(1, 2)
            for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        if self.fused:
            mixed = scaled_dot_product_attention(query, key, value)
        else:
            scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
            mixed = scores.softmax(-1) @ value
        output: Tensor = self.output(mixed.transpose(1, 2).reshape(TEXTS, LENGTH, WIDTH))
        return output


def measure() -> list[LibraryRow]:
    """Measure each in bfloat16 and train(), without dropout."""
    meet_cublas(torch.bfloat16)
    mha: Any = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    bert = library("transformers.models.bert.modeling_bert").BertAttention
    layers: dict[str, tuple[nn.Module, Callable[[Any, Tensor], Tensor]]] = {
        "the course: step by step": (_ByHand(fused=False), lambda layer, x: layer(x)),
        "the course: scaled_dot_product_attention": (
            _ByHand(fused=True),
            lambda layer, x: layer(x),
        ),
        "PyTorch: nn.MultiheadAttention, as it is called by default": (
            mha,
            lambda layer, x: layer(x, x, x)[0],
        ),
        "PyTorch: nn.MultiheadAttention, need_weights=False": (
            mha,
            lambda layer, x: layer(x, x, x, need_weights=False)[0],
        ),
    } | {
        versioned("transformers", f"BertAttention, {kind}"): (
            bert(_config(kind)),
            lambda layer, x: layer(x)[0],
        )
        for kind in ("eager", "sdpa")
    }
    x = torch.zeros(TEXTS, LENGTH, WIDTH, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    rows = []
    for name, (layer, call) in layers.items():
        layer.to("cuda", torch.bfloat16)
        sizes = step_sizes(
            lambda layer=layer, call=call: call(layer, x),  # type: ignore[misc]
            (x, *layer.parameters()),
            "left by forward",
            "peak",
        )
        rows.append(LibraryRow(name, sizes))
    return rows


def _config(kind: str) -> Any:
    return library("transformers").BertConfig(
        attn_implementation=kind,
        attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
        max_position_embeddings=LENGTH,
    )
