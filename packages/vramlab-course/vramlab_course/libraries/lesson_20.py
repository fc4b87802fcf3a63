"""Lesson 20: the stages of ZeRO on rank 0 of 8, by PyTorch and by DeepSpeed, in bfloat16."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from vramlab_course.libraries.measuring import alone_by_environment, begin, library, meet_cublas
from vramlab_course.libraries.results import LibraryRow, versioned
from vramlab_course.programs.chains import linear_chain

RANKS, LAYERS, WIDTH, ROWS = 8, 8, 2048, 64

SMALL_BUCKETS = {"reduce_bucket_size": WIDTH**2, "allgather_bucket_size": WIDTH**2}
"""Numbers: one layer's."""


def measure() -> list[LibraryRow]:
    """Measure FSDP2, and DeepSpeed's stages with its own buckets and with those of a layer."""
    meet_cublas()
    with alone_by_environment(RANKS):
        rows = [
            LibraryRow(f"PyTorch: fully_shard, stage {stage}", _fully_sharded(stage))
            for stage in (2, 3)
        ]
        for stage, small in ((0, False), (1, True), (2, False), (2, True), (3, False), (3, True)):
            options: dict[str, Any] = dict(SMALL_BUCKETS) if small else {}
            if small and stage == 3:
                options["stage3_prefetch_bucket_size"] = WIDTH**2
            name = f"stage {stage}" + (", buckets of a layer" if small else "")
            sizes = deepspeed_sizes({"stage": stage, **options})
            rows.append(LibraryRow(versioned("deepspeed", name), sizes))
    return rows


def deepspeed_sizes(zero: dict[str, Any]) -> dict[str, int]:
    """Measure what DeepSpeed keeps between two steps, and its peak in a step.

    Args:
        zero: the configuration's `zero_optimization`.
    """
    before_bytes = begin()
    model = linear_chain(LAYERS, WIDTH, device="cpu")
    engine, *_ = library("deepspeed").initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), foreach=True),
        config={
            "train_micro_batch_size_per_gpu": ROWS,
            "bf16": {"enabled": True},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": zero,
        },
        dist_init_required=False,
    )
    sizes = _of_steps(before_bytes, engine, engine.backward, engine.step)
    engine.destroy()
    return sizes


def _fully_sharded(stage: int) -> dict[str, int]:
    before_bytes = begin()
    model = linear_chain(LAYERS, WIDTH, device="meta")
    options: dict[str, Any] = {
        "reshard_after_forward": stage == 3,
        "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16),
    }
    for layer in model:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    model.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    return _of_steps(before_bytes, model, lambda loss: loss.backward(), step)


def _of_steps(before_bytes: int, model: nn.Module, backward: Any, step: Any) -> dict[str, int]:
    x = torch.zeros(ROWS, WIDTH, dtype=torch.bfloat16, device="cuda")
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        backward(model(x).float().square().mean())
        step()
    del x
    return {
        "kept between steps": torch.cuda.memory_allocated() - before_bytes,
        "peak of a step": torch.cuda.max_memory_allocated() - before_bytes,
    }
