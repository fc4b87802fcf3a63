"""Lesson 17: a model of 25 million parameters whose optimizer is on the host, by four programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vramlab.programs.offloading import HostOptimizer
from vramlab_course.lessons.l17_offloading.experiment import relu_chain
from vramlab_course.libraries.measuring import alone_by_environment, begin, library, meet_cublas
from vramlab_course.libraries.results import LibraryRow, versioned

LAYERS, WIDTH, ROWS = 6, 2048, 64


def measure() -> list[LibraryRow]:
    """Measure AdamW on the GPU, and optimizers of four programs on the host."""
    meet_cublas()
    adamw = torch.optim.AdamW
    offloading = library("torchao.optim").CPUOffloadOptimizer
    paged = library("bitsandbytes").optim.PagedAdamW32bit
    optimizers: dict[str, Callable[[list[nn.Parameter]], Any]] = {
        "PyTorch: AdamW on the GPU": adamw,
        "the course: HostOptimizer": lambda learning: HostOptimizer(
            learning, adamw, pin_memory=True
        ),
        versioned("torchao", "CPUOffloadOptimizer"): lambda learning: offloading(
            learning, adamw, offload_gradients=True
        ),
        versioned("bitsandbytes", "PagedAdamW32bit"): paged,
    }
    rows = [LibraryRow(name, _sizes(make)) for name, make in optimizers.items()]
    with alone_by_environment(1):
        for name, options in {
            "offload_optimizer": {},
            "the same, buckets of a layer": {"reduce_bucket_size": WIDTH**2},
        }.items():
            rows.append(LibraryRow(versioned("deepspeed", name), _deepspeed_sizes(options)))
    return rows


def _sizes(make: Callable[[list[nn.Parameter]], Any]) -> dict[str, int]:
    before_bytes = begin()
    model = relu_chain(LAYERS, WIDTH).to("cuda", torch.bfloat16)
    optimizer = make(list(model.parameters()))

    def step() -> None:
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None

    return _of_steps(before_bytes, model, lambda loss: loss.backward(), step)


def _deepspeed_sizes(options: dict[str, Any]) -> dict[str, int]:
    before_bytes = begin()
    model = relu_chain(LAYERS, WIDTH)
    engine, *_ = library("deepspeed").initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters()),
        config={
            "train_micro_batch_size_per_gpu": ROWS,
            "bf16": {"enabled": True},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, **options},
        },
        dist_init_required=False,
    )
    sizes = _of_steps(before_bytes, engine, engine.backward, engine.step)
    engine.destroy()
    return sizes


def _of_steps(
    before_bytes: int,
    model: Callable[[Tensor], Tensor],
    backward: Callable[[Tensor], Any],
    step: Callable[[], Any],
) -> dict[str, int]:
    x = torch.zeros(ROWS, WIDTH, dtype=torch.bfloat16, device="cuda")
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        backward(model(x).float().square().mean())
        step()
        torch.cuda.synchronize()
    del x
    return {
        "kept between steps": torch.cuda.memory_allocated() - before_bytes,
        "peak of a step": torch.cuda.max_memory_allocated() - before_bytes,
    }
