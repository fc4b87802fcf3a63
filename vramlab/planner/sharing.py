"""How ranks share a model's parameters: FSDP2 for data-parallel ranks, cuts of matrices for others.

Imported by plans that need it only: torch.distributed.tensor takes a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle

from vramlab.planner.plan import Plan
from vramlab.programs.transformer import TransformerLayer, TransformerPart


def shard(model: nn.Module, layers: Iterable[nn.Module], mesh: DeviceMesh, plan: Plan) -> None:
    """Give this rank its shard of every parameter, by FSDP2: each layer is gathered by itself."""
    options: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": plan.zero == 3}
    if plan.run.dtypes.master:
        compute = getattr(torch, plan.run.dtypes.compute)
        # Gradients are reduced in it, too: from PyTorch 2.15 on only if that is said.
        options["mp_policy"] = MixedPrecisionPolicy(compute, compute)
    if plan.optimizer_on_host:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    for layer in layers:
        fully_shard(layer, **options)
    # The root's parameters would be needed again at once.
    fully_shard(model, **options | {"reshard_after_forward": False})


def cut(model: TransformerPart, mesh: DeviceMesh, plan: Plan) -> None:
    """Give this rank its part of every matrix, as arXiv 1909.08053 cuts them.

    What it does between the matrices is the same on every rank, or with `plan.sequence_parallel`
    for its own part of each sequence.
    """
    between = Shard(1) if plan.sequence_parallel else Replicate()  # of (B, S, W)
    styles: dict[str, ParallelStyle] = {}
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, TransformerLayer)
        styles |= {
            f"layers.{number}.{name}": style
            for name, style in {
                "attention.qkv": ColwiseParallel(input_layouts=between),
                "attention.project": RowwiseParallel(output_layouts=between),
                "feed_forward.up": ColwiseParallel(input_layouts=between),
                "feed_forward.down": RowwiseParallel(output_layouts=between),
            }.items()
        }
        if plan.sequence_parallel:
            for norm in ("attention_norm", "feed_forward_norm"):
                styles[f"layers.{number}.{norm}"] = SequenceParallel()
        layer.attention.heads //= plan.tensor
        layer.attention.kv_heads //= plan.tensor
    if model.tokens is not None:
        styles["tokens"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    if model.head is not None:
        if plan.sequence_parallel:
            styles["norm"] = SequenceParallel()
        styles["head"] = ColwiseParallel(
            input_layouts=between, output_layouts=Shard(-1), use_local_output=False
        )
    parallelize_module(model, mesh, styles)
    if plan.sequence_parallel:
        model.sequence_ranks = plan.tensor
        model.first_position = mesh.get_local_rank() * plan.sequence // plan.tensor
