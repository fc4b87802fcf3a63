"""What a simulation of a plan measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Simulation:
    """What one rank held in the second step of training on a GPU that is not there."""

    stage: int
    """Of the pipeline."""
    bytes_by_category: Mapping[str, int]
    """At the moment at which blocks are largest together, by `vramlab.planner.CATEGORIES`, without
    unsplit remainders; empty if memory ran out."""
    allocated_bytes: int
    """The most that was allocated; if memory ran out, until then."""
    reserved_bytes: int
    """The most that was reserved, in both steps."""
    unsplit_remainder_bytes: int = 0
    """How much more was allocated at most: unsplit remainders of blocks."""
    problem: str = ""
    """What torch said when memory ran out."""
    native_torch: str = ""
    """The PyTorch whose own CUDA code ran, on the native engine; empty: on a virtual GPU."""

    @property
    def fits(self) -> bool:
        """Whether it got through."""
        return not self.problem

    @property
    def peak_bytes(self) -> int:
        """Allocated bytes at the peak but for unsplit remainders: what `estimate` answers."""
        return sum(self.bytes_by_category.values())
