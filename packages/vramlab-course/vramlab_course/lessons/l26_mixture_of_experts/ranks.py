"""Give each of the processes that torchrun starts an expert, and some tokens.

    torchrun --nproc-per-node=2 -m vramlab_course.lessons.l26_mixture_of_experts.ranks

Each rank reports the outputs of its tokens, and the gradients of its expert and of its tokens. In
float64, as `whole` computes them in one process.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vramlab_course.lessons.l26_mixture_of_experts.moe import ExpertParallelMoE, MoE
from vramlab_course.programs.ranks.join import Rank, join

TOKENS, WIDTH, INNER = 6, 8, 16
"""Tokens of each rank."""


def make_layer(experts: int) -> MoE:
    """Make the layer that is divided, the same in every process: the seed says which."""
    torch.manual_seed(0)
    return MoE(WIDTH, INNER, experts).double().to("cuda")


def make_tokens(experts: int) -> tuple[Tensor, Tensor]:
    """Make the tokens of all ranks, and choose two experts for each, the first one more often."""
    torch.manual_seed(1)
    x = torch.randn(experts * TOKENS, WIDTH, dtype=torch.float64)
    chosen = torch.tensor([[0, 1], [0, experts - 1], [1, 0]]).repeat(len(x) // 3, 1)
    return x, chosen


def whole(experts: int) -> dict[str, list[float]]:
    """Compute everything in one process."""
    layer, (x, chosen) = make_layer(experts), make_tokens(experts)
    x = x.to("cuda").requires_grad_()
    y = layer(x, chosen)
    y.square().sum().backward()
    return _numbers(y=y, x=x.grad, up=layer.up.grad, down=layer.down.grad)


def report(rank: Rank) -> None:
    """Compute this rank's part, and tell."""
    layer, (x, chosen) = make_layer(rank.world), make_tokens(rank.world)
    part = ExpertParallelMoE(WIDTH, INNER, rank.world).double().to("cuda")
    with torch.no_grad():
        part.router.weight.copy_(layer.router.weight)
        part.up.copy_(layer.up[rank.number])
        part.down.copy_(layer.down[rank.number])
    own = slice(rank.number * TOKENS, (rank.number + 1) * TOKENS)
    mine = x[own].to("cuda").requires_grad_()
    y = part(mine, chosen[own])
    y.square().sum().backward()
    rank.report(**_numbers(y=y, x=mine.grad, up=part.up.grad, down=part.down.grad))


def _numbers(**tensors: Tensor | None) -> dict[str, list[float]]:
    return {
        name: tensor.detach().flatten().cpu().tolist()
        for name, tensor in tensors.items()
        if tensor is not None
    }


if __name__ == "__main__":
    with join("T4") as this_rank:
        report(this_rank)
