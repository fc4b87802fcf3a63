"""Cut a transformer layer among processes that torchrun starts, and train it.

    torchrun --nproc-per-node=2 -m vramlab_course.lessons.l21_tensor_parallel.ranks

Each rank reports, for each division (`formulas` beside this file) but "whole", and
for each order in which a feed-forward layer can be cut: all parameters after some steps of AdamW,
put together again from all ranks, and how many of them this rank has. In float64, so that what is
left of rounding is far below what training changes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module

from vramlab.programs.tensor_parallel import DividedLayer, Plan, optimizer_of, order_plan, plan
from vramlab.programs.transformer import FeedForward
from vramlab.programs.transformer_memory import Sizes
from vramlab_course.lessons.l21_tensor_parallel.formulas import ORDERS
from vramlab_course.programs.ranks.join import Rank, join

STEPS, BATCH, SEQUENCE = 3, 2, 8
SIZES = Sizes(width=16, heads=4)


def make_layer() -> nn.Module:
    """Return a transformer layer without dropout; the seed makes it the same in all processes."""
    torch.manual_seed(0)
    return DividedLayer(SIZES, dropout=0.0).double().to("cuda")


def make_feed_forward() -> nn.Module:
    """Return a feed-forward layer, the same in every process."""
    torch.manual_seed(0)
    return FeedForward(SIZES, 0.0).double().to("cuda")


def make_batch(step: int) -> Tensor:
    """Return the whole batch of a step, (B, S, W), which every rank sees."""
    torch.manual_seed(1 + step)
    return torch.randn(BATCH, SEQUENCE, SIZES.width, dtype=torch.float64)


def train(model: nn.Module, rank: int = 0, parts: int = 1) -> list[float]:
    """Train, and answer all parameters.

    Args:
        model: the whole one, or this rank's part of it.
        rank: which part of each sequence this rank has, if sequences are cut.
        parts: into how many they are.
    """
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        x = make_batch(step).chunk(parts, dim=1)[rank].to("cuda")
        model(x).square().sum().backward()
        optimizer.step()
    return [number for p in model.parameters() for number in _whole(p).flatten().cpu().tolist()]


def _whole(parameter: Tensor) -> Tensor:
    detached = parameter.detach()
    return detached.full_tensor() if isinstance(detached, DTensor) else detached


def report(rank: Rank) -> None:
    """Train in every way, and tell."""
    mesh = init_device_mesh("cuda", (rank.world,))
    rank.report(
        tensor=_trained(make_layer(), mesh, plan("tensor"), rank),
        sequence=_trained(make_layer(), mesh, plan("sequence"), rank, cut_input=True),
        orders={
            ", ".join(order): _trained(make_feed_forward(), mesh, order_plan(order), rank)
            for order in ORDERS
        },
    )


def _trained(
    model: nn.Module, mesh: DeviceMesh, how: Plan, rank: Rank, *, cut_input: bool = False
) -> dict[str, Any]:
    model = parallelize_module(model, mesh, how)
    own = sum((p.to_local() if isinstance(p, DTensor) else p).numel() for p in model.parameters())
    trained = train(model, rank.number, rank.world) if cut_input else train(model)
    return {"own": own, "trained": trained}


if __name__ == "__main__":
    with join("T4") as this_rank:
        report(this_rank)
