"""A training step of the course's transformer on the attached GPU, measured.

`vramlab.programs.transformer_memory` and `vramlab.planner` predict what this measures.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from vramlab.measure import (
    Breakdown,
    Timeline,
    breakdown,
    record_timeline,
)
from vramlab.measure.categories import blocks_by_category
from vramlab.programs.master_weights import MasterWeights
from vramlab.programs.optimizers import OPTIMIZERS, WAYS, states_of
from vramlab.programs.transformer import DROPOUT, Transformer
from vramlab.programs.transformer_memory import Run, Sizes


class TransformerTraining:
    """Model, optimizer and one batch on the current GPU. All tokens are 0: values do not matter."""

    def __init__(self, sizes: Sizes, run: Run) -> None:
        self.run = run
        with torch.device("cuda"):
            self.model = Transformer(
                sizes,
                attention=run.attention,
                dropout=DROPOUT if run.dropout else 0.0,
                checkpointing=run.checkpointing,
            ).to(getattr(torch, run.dtypes.weights))

        def make(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
            return OPTIMIZERS[run.optimizer](parameters, **WAYS[run.implementation])

        parameters = list(self.model.parameters())
        self.optimizer = MasterWeights(parameters, make) if run.dtypes.master else make(parameters)
        self.tokens = torch.zeros(run.batch, run.sequence, dtype=torch.long, device="cuda")
        self.targets = torch.zeros_like(self.tokens)

    def states(self) -> list[Tensor]:
        """Return what the optimizer keeps: states, and float32 copies of parameters."""
        optimizer = self.optimizer
        return optimizer.states() if isinstance(optimizer, MasterWeights) else states_of(optimizer)

    def forward(self) -> Tensor:
        """Return the loss, with its graph."""
        with self._precision():
            loss: Tensor = self.model(self.tokens, self.targets)
        return loss

    def step(self) -> None:
        """Run a whole training step."""
        loss = self.forward()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _precision(self) -> AbstractContextManager[object]:
        if not self.run.dtypes.autocast:
            return nullcontext()
        return torch.autocast("cuda", dtype=getattr(torch, self.run.dtypes.compute))


@dataclass(frozen=True)
class StepMeasurement:
    """What the second training step took."""

    kept_bytes: int
    """By how much the forward pass lets memory grow, but for unsplit remainders."""
    timeline: Timeline
    """Of the second step."""
    at_peak: Breakdown
    """Where the bytes are at its peak."""
    reserved_bytes: int
    """The most that was reserved, in both steps."""

    @property
    def peak_bytes(self) -> int:
        """Allocated bytes at the peak, unsplit remainders included."""
        return self.at_peak.moment.allocated_bytes

    @property
    def bytes_by_category(self) -> dict[str, int]:
        """Bytes at the peak by category, without unsplit remainders."""
        return blocks_by_category(self.timeline, self.at_peak.moment.position)

    @property
    def unsplit_remainder_bytes(self) -> int:
        """The part of it that is unsplit remainders of blocks."""
        return self.at_peak.moment.remainder_bytes


def measure_step(sizes: Sizes, run: Run) -> StepMeasurement:
    """Take two steps on the current GPU, and record the second."""
    training = TransformerTraining(sizes, run)
    training.step()
    reserved_bytes = torch.cuda.max_memory_reserved()
    with record_timeline() as recording:
        recording.watch(
            model=training.model,
            inputs=[training.tokens, training.targets],
            states=training.states(),
        )
        recording.stage("forward")
        loss = training.forward()
        recording.stage("backward")
        loss.backward()
        del loss
        recording.stage("optimizer step")
        training.optimizer.step()
        training.optimizer.zero_grad()
        recording.stage(None)
    reserved_bytes = max(reserved_bytes, torch.cuda.max_memory_reserved())
    timeline = recording.timeline
    begins, ends = (
        timeline.at(next(s.start for s in timeline.stages if s.name == name))
        for name in ("forward", "backward")
    )
    kept_bytes = (ends.allocated_bytes - ends.remainder_bytes) - (
        begins.allocated_bytes - begins.remainder_bytes
    )
    return StepMeasurement(kept_bytes, timeline, breakdown(timeline), reserved_bytes)


def take_steps(sizes: Sizes, run: Run, steps: int = 2) -> int:
    """Take steps on the current GPU; torch.OutOfMemoryError if they do not fit.

    Returns:
        Allocated bytes at the peak.
    """
    training = TransformerTraining(sizes, run)
    for _ in range(steps):
        training.step()
    return torch.cuda.max_memory_allocated()
