"""Stages of a pipeline by torch.distributed.pipelining.

`vramlab_course.lessons.l22_pipeline_parallel.formulas` says what each holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vramlab.programs.pipeline_schedules import schedule_of_torch
from vramlab_course.lessons.l22_pipeline_parallel.formulas import PipelineStage

# torch.distributed.pipelining is imported where it is needed: it brings torch.export and Dynamo,
# which take a second that all else would wait for.


class Checkpointed(nn.Module):
    """Layers that keep their input only, and compute the rest again in backward."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, inputs) to (rows, outputs)."""
        y: Tensor = checkpoint(self.layers, x, use_reentrant=False)
        return y


def linear_layers(widths: Sequence[int], device: str = "cuda") -> nn.Sequential:
    """Return a chain of Linear layers without bias: (rows, widths[0]) to (rows, widths[-1])."""
    return nn.Sequential(*(nn.Linear(a, b, bias=False, device=device) for a, b in pairwise(widths)))


class LoneStage:
    """One stage of a pipeline, in a world that has been joined (`vramlab.programs.alone`).

    Attributes:
        layers: its chain of Linear layers.
        schedule: PyTorch's, ready for steps.
    """

    def __init__(self, stage: PipelineStage) -> None:
        from torch.distributed.pipelining import PipelineStage

        pipeline = stage.pipeline
        self._stage = stage
        self.layers = linear_layers(stage.widths)
        module = Checkpointed(self.layers) if pipeline.is_checkpointed else self.layers
        self.schedule = schedule_of_torch(pipeline.schedule)(
            PipelineStage(
                module,
                stage.rank,
                pipeline.ranks,
                torch.device("cuda", torch.cuda.current_device()),
                input_args=(self._example(stage.widths[0], not stage.is_first),),
                output_args=(self._example(stage.widths[-1], True),),
            ),
            pipeline.micro_batches,
            loss_fn=lambda y, _: y.sum(),
        )
        rows = pipeline.rows * pipeline.micro_batches
        self._inputs: tuple[Tensor, ...] = ()
        if stage.is_first:
            self._inputs = (torch.zeros(rows, stage.widths[0], device="cuda"),)
        self._target = (
            torch.zeros(rows) if stage.is_last else None
        )  # on the host: the loss needs none

    def _example(self, width: int, needs_gradient: bool) -> Tensor:
        """Tensors that have a shape and take no memory."""
        example = torch.empty(self._stage.pipeline.rows, width, device="meta")
        return example.requires_grad_(needs_gradient)

    def step(self) -> None:
        """Run all micro-batches forward and backward."""
        self.schedule.step(
            *self._inputs,
            target=self._target,
            return_outputs=self._stage.pipeline.returns_outputs,
        )
