"""The virtual GPUs that tasks run on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import vramlab
from vramlab_classroom.judge.lazy import torch
from vramlab_course.rules import RULES

if TYPE_CHECKING:
    from vramlab import VirtualGPU
    from vramlab.gpu.core.machine import VirtualDevice

NO_RESTS = "expandable_segments:True"
"""Allocator settings under which no block keeps a rest: lesson 02 is about those."""


@dataclass(frozen=True)
class GPU:
    """A virtual GPU to be made: its arguments, see `vramlab.VirtualGPU`.

    It has a name, so that a grade does not depend on the machine that grades; nor does it on the
    allocator settings there, or on how much other releases of PyTorch take.
    """

    name: str
    count: int = 1
    values: bool = False
    on_value: Literal["error", "nan", "zero"] = "error"
    torch_version: str = RULES
    alloc_conf: str = ""

    def attached(self) -> VirtualGPU:
        """Make it: a fresh one each time, for `with`."""
        return vramlab.VirtualGPU(**vars(self))

    def but(self, **changes: Any) -> GPU:
        """Return the same GPU with some arguments changed."""
        return replace(self, **changes)


def device(index: int = 0) -> VirtualDevice:
    """Return a device of the attached virtual GPU, to see or change what no program can."""
    from vramlab.gpu import attached

    gpu = attached()
    assert gpu is not None
    return gpu.machine.device(index)


def leave(free_bytes: int, index: int = 0) -> None:
    """Let others use the attached GPU, so that its driver has so much left to give."""
    left_bytes, _ = torch.cuda.mem_get_info(index)  # makes the context, if there is none yet
    device(index).memory.used_by_others_bytes += left_bytes - free_bytes


def allocate(size_bytes: int) -> torch.Tensor:
    """Make a tensor of so many bytes on the attached GPU."""
    return torch.empty(size_bytes, dtype=torch.uint8, device="cuda")
