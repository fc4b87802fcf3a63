"""PyTorch's pipeline schedules, run: each rank alone on a virtual GPU, then all in time together.

Every schedule of torch/distributed/pipelining/schedules.py (PyTorch 2.13) that trains runs as it
is. A rank that is simulated alone receives tensors without values, of the right sizes; which send
each receive waits for follows from the order of both.

A zero-bubble schedule (arXiv 2401.10241) splits each backward pass in two, and moves the half that
no other stage waits for into the bubble. Until then it keeps what that half needs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import record_function

from vramlab import VirtualGPU
from vramlab.measure.step_events import StepEvent, StepWork, record_events
from vramlab.measure.step_times import Rates, TimedRank, put_in_time
from vramlab.programs.alone import alone
from vramlab_course.lessons.l22_pipeline_parallel.pipeline_stage import linear_layers

SCHEDULES = (
    "GPipe",
    "1F1B",
    "LoopedBFS",
    "Interleaved1F1B",
    "InterleavedZeroBubble",
    "ZBVZeroBubble",
    "DualPipeV",
)
"""PyTorch's names, without `Schedule`."""

_ONE_STAGE = ("GPipe", "1F1B")
_IN_A_V = ("ZBVZeroBubble", "DualPipeV")

RULES = "1.13"
"""In which cuBLAS takes nothing of the allocator: what is left is the pipeline's."""


@dataclass(frozen=True)
class ScheduleRun:
    """The first step of a schedule, on all ranks."""

    name: str
    events: tuple[tuple[StepEvent, ...], ...]
    """Of each rank."""

    @property
    def peaks_bytes(self) -> list[int]:
        """Return the most that each rank has allocated."""
        return [
            max(event.peak_bytes for event in events if isinstance(event, StepWork))
            for events in self.events
        ]

    def sent_bytes(self, rank: int) -> int:
        """Add up what a rank sends to others."""
        return sum(
            event.moved_bytes
            for event in self.events[rank]
            if isinstance(event, StepWork) and event.kind == "send"
        )

    def in_time(self, rates: Rates) -> list[TimedRank]:
        """Put all ranks in time."""
        return put_in_time(self.events, rates)


def stages_of(name: str, rank: int, ranks: int) -> list[int]:
    """Return the stages of a rank: one, two in a loop, or two in a V, back from the last rank."""
    if name in _ONE_STAGE:
        return [rank]
    return [rank, 2 * ranks - 1 - rank if name in _IN_A_V else ranks + rank]


def run_schedule(
    name: str,
    ranks: int = 4,
    micro_batches: int = 8,
    *,
    rows: int = 512,
    width: int = 1024,
    layers_per_rank: int = 4,
    gpu: str = "A100-40GB",
) -> ScheduleRun:
    """Run a step of a chain of equal Linear layers on every rank, each alone.

    Args:
        name: one of `SCHEDULES`.
        ranks: GPUs.
        micro_batches: of a step; zero-bubble schedules in a V need about twice as many as ranks.
        rows: of a micro-batch.
        width: of the layers.
        layers_per_rank: on each rank, in all of its stages; an even number.
        gpu: of the catalogue.

    Raises:
        ValueError: no such schedule, or PyTorch does not plan it for these numbers.
    """
    if name not in SCHEDULES:
        raise ValueError(f"No schedule named {name!r}. Known: {', '.join(SCHEDULES)}.")
    events = []
    for rank in range(ranks):
        with VirtualGPU(gpu, torch_version=RULES), alone(ranks, rank):
            schedule, inputs, target = _prepared(
                name, rank, ranks, micro_batches, rows, width, layers_per_rank
            )
            with record_events() as recorded:
                schedule.step(*inputs, target=target, return_outputs=False)
            events.append(tuple(recorded))
            del schedule, inputs
    return ScheduleRun(name, tuple(events))


def _prepared(
    name: str,
    rank: int,
    ranks: int,
    micro_batches: int,
    rows: int,
    width: int,
    layers_per_rank: int,
) -> tuple[Any, tuple[torch.Tensor, ...], torch.Tensor | None]:
    # Imported here: it brings torch.export and Dynamo, which take a second.
    from torch.distributed.pipelining import PipelineStage, schedules

    class NamedStage(PipelineStage):
        """Names the ranges of its work: stage, kind of work and micro-batch, as in '0F3'."""

        def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
            with record_function(f"{self.stage_index}F{fwd_chunk_id}"):
                return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

        def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
            kind = "B" if kwargs.get("full_backward", True) else "I"
            with record_function(f"{self.stage_index}{kind}{bwd_chunk_id}"):
                return super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)

        def backward_weight_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
            with record_function(f"{self.stage_index}W{bwd_chunk_id}"):
                return super().backward_weight_one_chunk(bwd_chunk_id, *args, **kwargs)

    numbers = stages_of(name, rank, ranks)
    count = ranks * len(numbers)
    layers = layers_per_rank // len(numbers)
    device = torch.device("cuda", torch.cuda.current_device())

    def example(needs_gradient: bool) -> torch.Tensor:
        return torch.empty(rows, width, device="meta").requires_grad_(needs_gradient)

    stages = [
        NamedStage(
            linear_layers([width] * (layers + 1)),
            number,
            count,
            device,
            input_args=(example(number > 0),),
            output_args=(example(True),),
        )
        for number in numbers
    ]
    kind = getattr(schedules, f"Schedule{name}")
    schedule = kind(
        stages[0] if name in _ONE_STAGE else stages,
        micro_batches,
        loss_fn=lambda y, _: y.sum(),
    )
    all_rows = rows * micro_batches
    inputs = (torch.zeros(all_rows, width, device="cuda"),) if 0 in numbers else ()
    target = torch.zeros(all_rows) if count - 1 in numbers else None
    return schedule, inputs, target


_WORK = re.compile(r"^(\d+)([FBIW])(\d+)$")


def work_of(label: str) -> tuple[int, str, int] | None:
    """Return the stage, the kind of work and the micro-batch of a range; None if it is no work."""
    found = _WORK.match(label)
    return found and (int(found[1]), found[2], int(found[3]))


def bubble(ranks: Sequence[TimedRank]) -> float:
    """Return the share of all ranks' time in which they do not compute."""
    end_s = max(rank.end_s for rank in ranks)
    busy_s = sum(each.end_s - each.start_s for rank in ranks for each in rank.computing())
    return 1 - busy_s / (len(ranks) * end_s)
