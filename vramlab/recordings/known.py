"""Differences between the virtual GPU and real ones that have a name and a reason.

Nothing is tolerated by size. A difference is known where its reason is; everything else that
differs makes `vramlab compare` fail.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

QUANTITIES = ("allocated", "peak", "reserved", "peak reserved")


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
        """Whether it is the reason for a difference there."""
        return (
            quantity in self.quantities
            and fnmatch.fnmatchcase(stage, self.stages)
            and any(fnmatch.fnmatchcase(entry, pattern) for pattern in self.entries)
        )


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        "convolution-workspace",
        "cuDNN picks an algorithm, and with it a workspace, when a convolution first runs; the "
        "choice depends on the library's version and the GPU. It is given back when the op ends: "
        "peaks and reserved memory differ, and allocated memory does not",
        "aten/src/ATen/native/cudnn/Conv_v8.cpp, PyTorch 2.13",
        (
            "experiment/vgg16-*",
            "zoo/vgg16-*",
            "zoo/resnet50-*",
            "zoo/convnext-*",
            "zoo/vit-*",
        ),
        ("peak", "reserved", "peak reserved"),
    ),
    KnownDifference(
        "cudnn-lstm",
        "cuDNN runs an LSTM as one op, with a buffer for the backward pass and a workspace of its "
        "own choice; the virtual GPU runs it step by step",
        "aten/src/ATen/native/cudnn/RNN.cpp, PyTorch 2.13",
        ("zoo/lstm-*",),
    ),
)


def known_difference(entry: str, stage: str, quantity: str) -> KnownDifference | None:
    """The named reason for a difference, or None."""
    for known in KNOWN:
        if known.explains(entry, stage, quantity):
            return known
    return None
