"""A layer of experts, of which each token goes to a few; in plain PyTorch, for every GPU.

Sources: Switch Transformer (arXiv 2101.03961) for tokens that are dropped beyond a capacity;
MegaBlocks (arXiv 2211.15841) for experts that take as many as come.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import gelu


class MoE(nn.Module):
    """Experts that take as many tokens as come.

    Args:
        width: of the model.
        inner: of each expert.
        experts: how many there are.
        top_k: experts that each token goes to.
    """

    def __init__(self, width: int, inner: int, experts: int, top_k: int = 2) -> None:
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, inner, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, width, inner) / inner**0.5)

    def forward(self, x: Tensor, chosen: Tensor | None = None) -> Tensor:
        """Send each token to its experts, and add up what comes back, by the router's weights.

        Args:
            x: tokens (tokens, width).
            chosen: numbers of the experts of each token (tokens, top_k), on the host; by default
                those that the router prefers, which the host waits for.
        """
        scores = self.router(x).softmax(-1)
        if chosen is None:
            chosen = scores.topk(self.top_k).indices.cpu()
        order = chosen.flatten().argsort(stable=True)  # pairs of token and expert, by expert
        counts = chosen.flatten().bincount(minlength=len(self.up)).tolist()
        pairs, tokens = order.to(x.device), (order // self.top_k).to(x.device)
        weights = scores.gather(1, chosen.to(x.device)).flatten()[pairs]
        outputs = [
            gelu(part @ up.T) @ down.T
            for part, up, down in zip(x[tokens].split(counts), self.up, self.down, strict=True)
        ]
        weighted = torch.cat(outputs) * weights[:, None]
        return torch.zeros_like(x).index_add(0, tokens, weighted)


def spread(tokens: int, experts: int, top_k: int = 2) -> Tensor:
    """Choose experts for each token, so that each expert gets as many: 0 and 1, 2 and 3, ..."""
    return torch.arange(tokens * top_k).remainder(experts).reshape(tokens, top_k)


def crowd(tokens: int, experts: int, share: float, top_k: int = 2) -> Tensor:
    """Let expert 0 be among the choices of this share of all tokens; spread the other choices.

    Args:
        tokens: how many.
        experts: how many; more than `top_k`.
        share: of the tokens, from the first on.
        top_k: experts of each.
    """
    others = 1 + torch.arange(tokens * top_k).remainder(experts - 1).reshape(tokens, top_k)
    others[: round(share * tokens), 0] = 0
    return others


class ExpertParallelMoE(nn.Module):
    """The same layer with an expert on each rank; every rank has tokens of its own.

    Args:
        width: of the model.
        inner: of each expert.
        ranks: of the default process group; so many experts there are.
    """

    def __init__(self, width: int, inner: int, ranks: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, ranks, bias=False)
        self.up = nn.Parameter(torch.randn(inner, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(width, inner) / inner**0.5)

    def forward(self, x: Tensor, chosen: Tensor, received: list[int] | None = None) -> Tensor:
        """Send tokens to the ranks of their experts, and add up what comes back.

        Args:
            x: tokens of this rank (tokens, width).
            chosen: numbers of the experts of each (tokens, top_k), on the host.
            received: how many tokens each rank sends here; by default the ranks are asked.
        """
        scores = self.router(x).softmax(-1)
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=scores.shape[1]).tolist()
        if received is None:
            received = _heard(torch.tensor(counts, device=x.device)).tolist()
        pairs, tokens = order.to(x.device), (order // chosen.shape[1]).to(x.device)
        weights = scores.gather(1, chosen.to(x.device)).flatten()[pairs]
        arrived = _exchange(x[tokens], received, counts)
        outputs = gelu(arrived @ self.up.T) @ self.down.T
        back = _exchange(outputs, counts, received)
        return torch.zeros_like(x).index_add(0, tokens, back * weights[:, None])


class _AllToAll(torch.autograd.Function):
    """Rows go to other ranks, and their gradients come back the same way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, received: list[int], sent: list[int]) -> Tensor:
        ctx.received, ctx.sent = received, sent
        arrived = x.new_empty(sum(received), x.shape[1])
        dist.all_to_all_single(arrived, x.contiguous(), received, sent)
        return arrived

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _exchange(gradient, ctx.sent, ctx.received), None, None


def _exchange(x: Tensor, received: list[int], sent: list[int]) -> Tensor:
    exchanged: Tensor = _AllToAll.apply(x, received, sent)  # type: ignore[no-untyped-call]
    return exchanged


def _heard(counts: Tensor) -> Tensor:
    """Tell every rank how many rows it will get, and hear it of the others."""
    heard = torch.empty_like(counts)
    dist.all_to_all_single(heard, counts)
    return heard
