"""What a simulation of a plan measured, and how the native engine is asked for one.

`simulator.py` carries a plan out. On the native engine it does so in a process of its own, where
PyTorch's own CUDA code allocates.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from vramlab.native.choice import Choice, run_command
from vramlab.native.errors import NativeEngineError
from vramlab.planner.events import REMAINDERS
from vramlab.planner.plan import Plan

INSIDE = "--simulate-inside"
"""Option of `vramlab plan` for the process that is started: a stage, and the file to write."""


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


def simulate_natively(plan: Plan, stage: int, choice: Choice, words: Sequence[str]) -> Simulation:
    """Run two steps of the first rank of a stage on the native engine.

    The process that is started makes the plan again: a model of one's own is code.

    Args:
        plan: what to carry out.
        stage: of the pipeline.
        choice: the native engine.
        words: that the plan was made from, after `vramlab`.

    Raises:
        NativeEngineError: the engine cannot be used, or the process ends without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="vramlab-plan-") as folder:
        file = Path(folder, "simulation.json")
        status = run_command(choice, [*words, INSIDE, str(stage), str(file)], plan.model)
        if not file.exists():
            raise NativeEngineError(
                f"the simulation on the native engine ended with status {status}, see its output "
                "above; or use --engine portable"
            )
        return Simulation(**json.loads(file.read_text(encoding="utf-8")))


def write_inside(plan: Plan, stage: int, file: Path) -> None:
    """Simulate a plan in this process, which runs on the native engine, and write what it found."""
    from vramlab.planner.simulator import simulate_inside

    text = json.dumps(asdict(simulate_inside(plan, stage)))
    file.write_text(text, encoding="utf-8")
