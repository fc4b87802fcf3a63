"""Lesson 26: what a layer of experts leaves for its backward pass, ours and transformers'."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vramlab_course.lessons.l26_mixture_of_experts.moe import MoE, spread
from vramlab_course.libraries.measuring import library, meet_cublas, step_sizes
from vramlab_course.libraries.results import LibraryRow, versioned

TOKENS, WIDTH, INNER, EXPERTS, TOP_K = 1024, 1024, 2048, 8, 2


def measure() -> list[LibraryRow]:
    """Measure the course's layer and Mixtral's experts, by each implementation, in bfloat16."""
    meet_cublas(torch.bfloat16)
    x = torch.zeros(TOKENS, WIDTH, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    chosen = spread(TOKENS, EXPERTS).to("cuda")
    weights = torch.ones(TOKENS, TOP_K, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    layers: dict[str, tuple[nn.Module, Callable[[], Tensor]]] = {}
    ours = MoE(WIDTH, INNER, EXPERTS).to("cuda", torch.bfloat16)
    layers["the course, GELU"] = (ours, lambda: ours(x, chosen.cpu()))
    for way in ("batched_mm", "grouped_mm"):
        experts = _experts(way)
        name = versioned("transformers", f"Mixtral, {way}")
        layers[name] = (experts, lambda experts=experts: experts(x, chosen, weights))  # type: ignore[misc]
    return [
        LibraryRow(
            name,
            step_sizes(run, (x, weights, *layer.parameters()), "left by forward", "peak"),
        )
        for name, (layer, run) in layers.items()
    ]


def _experts(way: str) -> nn.Module:
    mixtral = library("transformers.models.mixtral.modeling_mixtral")
    config = library("transformers").MixtralConfig(
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_local_experts=EXPERTS,
        num_experts_per_tok=TOP_K,
        experts_implementation=way,
    )
    with torch.device("cuda"):
        experts: nn.Module = mixtral.MixtralExperts(config).to(torch.bfloat16)
    for parameter in experts.parameters():
        nn.init.zeros_(parameter)
    return experts
