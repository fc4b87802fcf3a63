"""Simulate a plan in a process on the native engine: PyTorch's own CUDA code allocates."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from vramlab.native.choice import Choice, run_command
from vramlab.native.errors import NativeEngineError
from vramlab.planner.plan import Plan
from vramlab.planner.simulation import Simulation

INSIDE = "--simulate-inside"
"""Option of `vramlab plan` for the process that is started: a stage, and the file to write."""


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
