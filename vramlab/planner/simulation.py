"""What a simulation of a plan measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vramlab.planner.events import REMAINDERS


@dataclass(frozen=True)
class Simulation:
    """What one rank held in two steps of training on a virtual GPU."""

    stage: int
    """Of the pipeline."""
    bytes_by_category: Mapping[str, int]
    """At the peak, by `vramlab.planner.CATEGORIES`, and `REMAINDERS`; empty if memory ran out."""
    allocated_bytes: int
    """The most that was allocated; if memory ran out, until then."""
    reserved_bytes: int
    """The most that was reserved."""
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
        """The most that was allocated: what `estimate` predicts."""
        return self.allocated_bytes

    @property
    def unsplit_remainder_bytes(self) -> int:
        """The part of the peak that is unsplit remainders of blocks."""
        return self.bytes_by_category.get(REMAINDERS, 0)

    @property
    def blocks_bytes(self) -> int:
        """The peak without unsplit remainders."""
        return self.peak_bytes - self.unsplit_remainder_bytes
