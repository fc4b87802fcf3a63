"""What the lessons' measurements have in common."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from vramlab import attach, attached, detach
from vramlab.programs.alone import alone


def library(name: str) -> Any:
    """Import a module of a library, whose types this project does not know."""
    return import_module(name)


def meet_cublas(*dtypes: torch.dtype) -> None:
    """Let both threads, of forward and backward, take cuBLAS's workspaces."""
    for dtype in dtypes or (torch.float32, torch.bfloat16):
        small = torch.zeros(16, 16, device="cuda", dtype=dtype, requires_grad=True)
        (small @ small).sum().backward()


def alone_by_environment(ranks: int) -> AbstractContextManager[None]:
    """Be rank 0 of some, for libraries that read their rank from the environment, too."""
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(ranks))
    os.environ.update(DS_ACCELERATOR="cuda", DS_BUILD_OPS="0")  # DeepSpeed compiles nothing
    return alone(ranks)


@contextmanager
def without_gpu() -> Iterator[None]:
    """Detach the virtual GPU for a while, for libraries that trace programs or use fake tensors."""
    gpu = attached()
    if gpu is not None and gpu.virtual:
        detach()
    try:
        yield
    finally:
        if gpu is not None and gpu.virtual:
            attach("A100-80GB", quiet=True)


def begin() -> int:
    """Free what earlier programs left, start a new peak, and return what is allocated."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def step_sizes(
    forward: Callable[[], Tensor | tuple[Tensor, ...]],
    leaves: Iterable[Tensor],
    saved: str,
    peak: str,
) -> dict[str, int]:
    """Run forward and backward twice, and measure the second time.

    Args:
        forward: returns something whose sum has a backward pass, and what is held until then.
        leaves: tensors whose gradients are freed before the second time.
        saved: what to call the bytes that the forward pass leaves allocated.
        peak: what to call the most that is allocated beyond what was there before.
    """
    leaves = list(leaves)
    for _ in range(2):
        for leaf in leaves:
            leaf.grad = None
        before_bytes = begin()
        made = forward()
        result, *held = made if isinstance(made, tuple) else (made,)
        del made
        saved_bytes = torch.cuda.memory_allocated() - before_bytes
        result.sum().backward()
        peak_bytes = torch.cuda.max_memory_allocated() - before_bytes
        del result, held
    for leaf in leaves:
        leaf.grad = None
    return {saved: saved_bytes, peak: peak_bytes}
