"""Differences between the virtual GPU and real ones that have a name and a reason.

Nothing is tolerated by size. A difference is known where its reason is; everything else that
differs makes `vramlab compare` fail.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

QUANTITIES = ("allocated", "peak", "reserved", "peak reserved")
OUTCOME = "outcome"
"""Not a number: whether a stage ran, and how it ended."""


@dataclass(frozen=True)
class KnownDifference:
    """A difference that is understood and not modelled."""

    name: str
    why: str
    """The reason, for the report."""
    source: str
    """Where it can be checked."""
    entries: tuple[str, ...]
    """Patterns of entries' ids."""
    quantities: tuple[str, ...] = QUANTITIES
    stages: str = "*"
    """Pattern of stages' names."""

    def explains(self, entry: str, stage: str, quantity: str) -> bool:
        """Return whether it is the reason for a difference there."""
        return (
            quantity in self.quantities
            and fnmatch.fnmatchcase(stage, self.stages)
            and any(fnmatch.fnmatchcase(entry, pattern) for pattern in self.entries)
        )


_CONVOLUTION = (
    "cuDNN chooses an algorithm, and with it a workspace, when a convolution first runs. vramlab "
    "describes the GPU to cuDNN; with a real handle on Hopper, cuDNN was seen to choose "
    "differently for some layers. The workspace is freed when the op ends, so peaks and reserved "
    "memory differ, and allocated memory by unsplit remainders of blocks at other addresses"
)

_LATE_FREES = (
    "late-frees-of-autograd",
    "autograd's thread for a GPU frees the last tensors of a backward pass after the program has "
    "continued. Whether they are still allocated when the next call begins is a race, and its "
    "result varies on the native engine. Seen when a small call follows a large one",
    "Engine::thread_main in torch/csrc/autograd/engine.cpp, PyTorch 2.13; the same calls, recorded "
    "eight times",
)

_NCCL_SHELF = (
    "nccl-shelf",
    "NCCL's process group keeps the tensors of a finished all-reduce until its watchdog has seen "
    "that it finished and the next collective begins. DDP replaces its first buckets after one "
    "step; if steps are short, they live until the end of the second",
    "ProcessGroupNCCL::shelvesToUnstash_ in torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, "
    "PyTorch 2.13",
)

SEGMENT_ORDER = KnownDifference(
    "segment-order",
    "both request the same sizes and free the same blocks between requests, but segments are at "
    "other addresses, because the host's own mappings are between the driver's. So another one of "
    "several equal blocks is used. PyTorch 2.12 and newer use the oldest, whatever its address",
    "BlockComparatorSize in c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.11",
    (),
)
"""Found by comparing traces (`alignment.same_requests`), not by the entry's name."""

KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        "convolution-workspace",
        _CONVOLUTION,
        "aten/src/ATen/native/cudnn/Conv_v8.cpp, PyTorch 2.13",
        (
            "experiment/vgg16-*",
            "zoo/vgg16-*",
            "zoo/resnet50-*",
            "zoo/convnext-*",
            "zoo/vit-*",
            "experiment/checkpoint-resnet1000",
            "rule/aten.convolution.default",
            "rule/aten.convolution_backward.default",
        ),
    ),
    KnownDifference(
        "convolution-workspace",
        _CONVOLUTION,
        "aten/src/ATen/native/cudnn/Conv_v8.cpp, PyTorch 2.13",
        ("experiment/operators-save",),
        ("peak", "reserved", "peak reserved"),
        stages="conv2d",
    ),
    KnownDifference(
        "cudnn-attention",
        "cuDNN's attention chooses its workspaces, which are modelled for compute capability 9.0 "
        "alone",
        "aten/src/ATen/native/cudnn/MHA.cpp, PyTorch 2.13",
        ("experiment/attention-kinds", "zoo/*-adamw-sdpa*"),
    ),
    KnownDifference(
        "timed-steps",
        "on a real GPU the experiment also measures times, and these steps leave blocks in the "
        "cache for the next stages",
        "_seconds in the experiment checkpoint_claims of lesson 14",
        ("experiment/checkpoint-slowdown",),
    ),
    KnownDifference(
        "kernels-on-first-use",
        "CUDA loads kernels when they are first used: on an H200 with PyTorch 2.11, 92 MiB with "
        "the first kernel and 66 MiB with the first matrix product. The virtual GPU does not "
        "count them, so a program that fills the GPU can allocate a little more",
        "entry `context` of the recording",
        ("experiment/oom-anatomy", "experiment/t4-params"),
        (*QUANTITIES, OUTCOME),
    ),
    KnownDifference(
        *_NCCL_SHELF,
        ("experiment/ddp-step", "experiment/zero-table"),
        stages="DDP*",
    ),
    KnownDifference(
        *_NCCL_SHELF,
        ("experiment/zero-table",),
        stages="ZeRO-1*",
    ),
    KnownDifference(
        *_LATE_FREES,
        (
            "rule/aten._scaled_dot_product_efficient_attention_backward.default",
            "rule/aten._scaled_dot_product_flash_attention_backward.default",
        ),
        ("peak", "reserved", "peak reserved"),
        stages="*backward (*1, 12, 1, 64*",
    ),
    KnownDifference(
        *_LATE_FREES,
        (
            "rule/aten._scaled_dot_product_efficient_attention_backward.default",
            "rule/aten._scaled_dot_product_flash_attention_backward.default",
        ),
        ("peak", "reserved", "peak reserved"),
        stages="*backward (*1, 4, 128, 160*",
    ),
    KnownDifference(
        *_LATE_FREES,
        ("rule/aten._scaled_dot_product_efficient_attention_backward.default",),
        ("reserved", "peak reserved"),
        stages="*backward (f32*2, 8, 1024, 128*",
    ),
    SEGMENT_ORDER,
)


def names_and_reasons() -> tuple[tuple[str, str, str], ...]:
    """Name, why and source of each known difference, once: some have several lines in `KNOWN`."""
    return tuple(dict.fromkeys((known.name, known.why, known.source) for known in KNOWN))


def known_difference(entry: str, stage: str, quantity: str) -> KnownDifference | None:
    """Return the named reason for a difference, or None."""
    for known in KNOWN:
        if known.explains(entry, stage, quantity):
            return known
    return None
