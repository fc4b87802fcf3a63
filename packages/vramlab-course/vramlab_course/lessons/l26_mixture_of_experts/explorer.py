"""Explore what a layer of experts holds on each rank, and what a crowd does to one of them."""

from __future__ import annotations

from typing import Annotated

import torch

from vramlab import VirtualGPU
from vramlab.measure import Table
from vramlab.programs.alone import alone
from vramlab.units import format_mib, short_size
from vramlab_course.lessons.l26_mixture_of_experts.formulas import (
    dispatched_bytes,
    expert_parameters,
)
from vramlab_course.lessons.l26_mixture_of_experts.moe import ExpertParallelMoE, crowd
from vramlab_course.plots import draw_stacks
from vramlab_course.widgets.controls import choice, powers, slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import UnlistedGPU, roomy

BYTES_PER_PARAMETER = 16
"""Weight, gradient and AdamW's states, in float32."""


@explorer("Experts on ranks")
def moe_explorer(
    tokens: Annotated[int, powers("Tokens", 256, 16384), "of each rank"] = 4096,
    width: Annotated[int, powers("Width", 128, 4096), "of the model"] = 1024,
    inner: Annotated[int, powers("Inside", 128, 16384), "width of an expert, inside"] = 2048,
    ranks: Annotated[int, choice("Ranks", (4, 8, 16)), "with an expert each"] = 8,
    share: Annotated[int, slider("Crowd, %", 0, 100, 5), "of the tokens go to expert 0"] = 50,
    gpu: UnlistedGPU = "A100-80GB",
) -> View:
    """Show what a forward pass leaves on rank 0, which has the crowd, and on another.

    Each token goes to two experts. Both ranks run, each alone.
    """
    chosen = crowd(tokens, ranks, share / 100)
    counts = chosen.flatten().bincount(minlength=ranks).tolist()
    grown = [measure_rank(tokens, width, inner, counts, rank, gpu) for rank in (0, 1)]
    states_bytes = BYTES_PER_PARAMETER * expert_parameters(width, inner)
    times = grown[0] / grown[1]
    summary = (
        f"Rank 0 gets {ranks * counts[0]:,} tokens and rank 1 {ranks * counts[1]:,}: what forward "
        f"leaves there is {short_size(grown[0])} and {short_size(grown[1])}, {times:.1f} times."
    )
    picture = draw_stacks(
        {
            f"rank {rank}": {"weights and states": states_bytes, "activations": grown[rank]}
            for rank in (0, 1)
        },
        title=f"{share}% of all tokens go to expert 0",
    )
    sent = dispatched_bytes(tokens, width, 2, ranks, "float32")
    rows = (
        ("weights, gradients and AdamW's states of an expert", format_mib(states_bytes)),
        ("rank 0: tokens that come", f"{ranks * counts[0]:,}"),
        ("rank 0: what forward leaves", format_mib(grown[0])),
        ("rank 1: tokens that come", f"{ranks * counts[1]:,}"),
        ("rank 1: what forward leaves", format_mib(grown[1])),
        ("sent by a rank, if spread evenly, each way", format_mib(sent)),
    )
    return View(summary, picture, (Table("A layer, in float32", ("what", "size"), rows),))


def measure_rank(
    tokens: int, width: int, inner: int, counts: list[int], rank: int, gpu: str
) -> int:
    """Run a forward pass on one rank, and give what it leaves.

    Args:
        tokens: of each rank.
        width, inner: of the layer.
        counts: tokens that each rank sends to each expert.
        rank: which.
        gpu: by its name; it has room for everything.
    """
    ranks = len(counts)
    chosen = torch.repeat_interleave(torch.arange(ranks), torch.tensor(counts)).reshape(-1, 2)
    with VirtualGPU(roomy(gpu)), alone(ranks, rank):
        with torch.device("cuda"):
            layer = ExpertParallelMoE(width, inner, ranks)
            x = torch.zeros(tokens, width, requires_grad=True)
        received = [counts[rank]] * ranks
        with torch.no_grad():
            layer(x, chosen, received)  # cuBLAS has its workspace from here on
        before_bytes = torch.cuda.memory_allocated()
        y = layer(x, chosen, received)
        grown_bytes = torch.cuda.memory_allocated() - before_bytes
        del layer, x, y
    return grown_bytes
