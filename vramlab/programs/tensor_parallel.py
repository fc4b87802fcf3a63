"""Layers whose matrices torch.distributed.tensor.parallel cuts, as in arXiv 1909.08053.

What each rank holds: arXiv 2205.05198 §4.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle
from torch.nn import functional

from vramlab.programs.divisions import Cut, Division, Order
from vramlab.programs.transformer import DROPOUT, FeedForward
from vramlab.programs.transformer_memory import Sizes

Plan = dict[str, ParallelStyle]
"""How each part of a model is cut, by its name."""


class DividedAttention(nn.Module):
    """(B, S, W) to (B, S, W), step by step; as many heads as its Linear layers put out.

    Query, key and value have a Linear layer each, so that whole heads can be cut off.
    """

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.head_size, self.dropout = sizes.head_size, dropout
        self.query, self.key, self.value, self.output = (
            nn.Linear(sizes.width, sizes.width) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            linear(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)  # (B, heads, S, D)
            for linear in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-2, -1) * self.head_size**-0.5
        weights = functional.dropout(scores.softmax(-1), self.dropout, self.training)
        output: Tensor = self.output((weights @ value).transpose(1, 2).flatten(2))
        return functional.dropout(output, self.dropout, self.training)


class DividedLayer(nn.Module):
    """A transformer layer with the norms in front, (B, S, W) to the same."""

    def __init__(self, sizes: Sizes, dropout: float = DROPOUT) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(sizes.width)
        self.attention = DividedAttention(sizes, dropout)
        self.feed_forward_norm = nn.LayerNorm(sizes.width)
        self.feed_forward = FeedForward(sizes, dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        output: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return output


def plan(division: Division, *, shared_input: bool = True) -> Plan:
    """Tell PyTorch how to cut a `DividedLayer`.

    Args:
        division: see `vramlab.programs.divisions`.
        shared_input: query, key and value get their input as one distributed tensor; False: each
            makes its own, and reduces its gradient.
    """
    if division == "whole":
        return {}
    columns: Plan = {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
    columns["feed_forward.up"] = ColwiseParallel()
    rows = ("attention.output", "feed_forward.down")
    if division == "tensor":
        shared: Plan = {"attention": _takes(Replicate())} if shared_input else {}
        return shared | columns | {name: RowwiseParallel() for name in rows}
    # Dimension 1 of (B, S, W) is the sequence.
    return {
        "attention_norm": SequenceParallel(),
        "attention": _takes(Shard(1)),
        "feed_forward_norm": SequenceParallel(),
        "feed_forward": _takes(Shard(1)),
        **columns,
        **{name: RowwiseParallel(output_layouts=Shard(1)) for name in rows},
    }


def _takes(placement: Any) -> PrepareModuleInput:
    """Return a style whose input is placed so, and needed whole."""
    return PrepareModuleInput(
        input_layouts=(placement,), desired_input_layouts=(Replicate(),), use_local_output=False
    )


def divided(model: nn.Module, mesh: DeviceMesh, how: Plan) -> nn.Module:
    """Cut a model and put this rank's part on the GPU, where the whole model never is."""
    parallel: nn.Module = parallelize_module(model.to("meta"), mesh, how) if how else model
    return parallel.to_empty(device="cuda")


def parameter_groups(parameters: Iterable[nn.Parameter]) -> list[dict[str, Any]]:
    """Group parameters for an optimizer: those that are cut among the same ranks together.

    The foreach implementation does not mix DTensors of different meshes, nor with other tensors.
    """
    groups: dict[DeviceMesh | None, list[nn.Parameter]] = {}
    for parameter in parameters:
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        groups.setdefault(mesh, []).append(parameter)
    return [{"params": group} for group in groups.values()]


def optimizer_of(model: nn.Module) -> torch.optim.AdamW:
    """Make AdamW for a model that was cut."""
    return torch.optim.AdamW(parameter_groups(model.parameters()))


def order_plan(order: Order) -> Plan:
    """Tell PyTorch how to cut a feed-forward layer whose input and output are whole."""
    inside_is_cut = order == ("column", "row")
    styles: dict[Cut, Any] = {
        "column": lambda last: ColwiseParallel(
            output_layouts=Shard(-1) if inside_is_cut else Replicate()
        ),
        "row": lambda last: RowwiseParallel(
            input_layouts=Shard(-1) if last and inside_is_cut else Replicate()
        ),
    }
    first, second = order
    return {"up": styles[first](False), "down": styles[second](True)}
