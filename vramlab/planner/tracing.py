"""Record what a plan's training step does to memory: each block of one rank, and what it is."""

from __future__ import annotations

import gc
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vramlab.catalogue import GPUModel
from vramlab.garbage import no_garbage_collection
from vramlab.gpu import VirtualGPU
from vramlab.gpu.ops.values import AnswerNan
from vramlab.measure import BlockLife, Category, Timeline, attribute, record_timeline
from vramlab.planner.estimate import ROOM_BYTES
from vramlab.planner.events import (
    CATEGORIES,
    GATHERED,
    REMAINDERS,
    STEP_BEGINS,
    BlockEvent,
    Events,
    Moment,
)
from vramlab.planner.plan import Plan
from vramlab.planner.program import Training, first_rank_of

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

HOST_VALUES_BELOW_BYTES = 2**16
"""An optimizer on the host has nothing to compute but steps and rates."""

_STEP = "step"

_COLLECTIVES = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "wait_tensor")
_SENDING = (
    "torch/distributed/fsdp/",
    "torch/distributed/pipelining/",
    "torch/distributed/_functional_collectives.py",
    "torch/nn/parallel/distributed.py",
)
"""Code of PyTorch that allocates what is gathered, sent and received, and nothing else."""
_NEAR = 4
"""How many of the innermost frames are looked at for code that sends; ops have frames, too."""


class TracedSteps(NamedTuple):
    """What was recorded of a plan's steps."""

    events: Events
    value_reads: tuple[tuple[str, str], ...]
    """Values that the model has read and that do not exist: how and where, the first one first."""


def trace(plan: Plan, stage: int = 0, micro_batches: int | None = None) -> TracedSteps:
    """Run two steps of the first rank of a stage on a fresh virtual GPU, and record them.

    The GPU has more memory than any plan takes. Whatever is attached is left alone.

    Args:
        plan: what to carry out.
        stage: of the pipeline.
        micro_batches: that are done in a step, instead of all; there are inputs for all.
    """
    gpu = gpu_of(plan, replace(plan.model, total_bytes=ROOM_BYTES))
    with no_garbage_collection(), gpu, first_rank_of(plan, stage) as mesh:
        events = events_of(record_steps(plan, mesh, micro_batches))
    reads = gpu.values.reads if isinstance(gpu.values, AnswerNan) else ()
    return TracedSteps(events, tuple(reads))


def gpu_of(plan: Plan, model: GPUModel, alloc_conf: str | None = None) -> VirtualGPU:
    """Return a fresh virtual GPU for a plan; values that a model reads are nan and 0."""
    return VirtualGPU(
        model,
        on_value="nan" if plan.is_custom else "error",
        alloc_conf=alloc_conf,
        host_values_below_bytes=HOST_VALUES_BELOW_BYTES,
    )


def record_steps(
    plan: Plan, mesh: DeviceMesh | None, micro_batches: int | None = None, steps: int = 2
) -> Timeline:
    """Run steps on the attached GPU, and record all that is allocated from the model on.

    Args:
        plan: what to carry out.
        mesh: of the ranks, if there are several.
        micro_batches: that are done in a step; all if None.
        steps: how many, at least two.

    Raises:
        torch.OutOfMemoryError: the GPU is too small.
    """
    with record_timeline(stacks="all") as recording:
        kind = _kind_of_training(plan)
        training = kind(plan, mesh, micro_batches=micro_batches, begins=recording.stage)
        recording.watch(model=training.model, inputs=training.inputs)
        training.step()
        recording.watch(states=training.states())
        gc.collect(0)  # what imports at the first step of a process left in cycles
        recording.stage(_STEP)
        for _ in range(steps - 1):
            training.step()
    return recording.timeline


def _kind_of_training(plan: Plan) -> type[Training]:
    if not plan.is_custom:
        return Training
    from vramlab.planner.custom_training import CustomTraining

    return CustomTraining


def begin_of_step(timeline: Timeline) -> int:
    """Return the position at which the second of two recorded steps begins."""
    return next(stage.start for stage in timeline.stages if stage.name == _STEP)


def events_of(timeline: Timeline) -> Events:
    """Return all that was recorded of two steps, from the making of the model on."""
    begins = begin_of_step(timeline)
    by_position: dict[int, tuple[int, BlockEvent, bool]] = {}
    allocations = _allocations(timeline)
    for number, (block, event) in enumerate(zip(timeline.blocks, allocations, strict=True)):
        by_position[block.born] = number, event, True
        if block.freed is not None:
            by_position[block.freed] = number, event, False
    live: dict[BlockEvent, list[int]] = defaultdict(list)
    events: list[BlockEvent] = []
    is_later = False
    for position in sorted(by_position):
        if position >= begins and not is_later:
            is_later = True
            events.append(STEP_BEGINS)
        number, event, is_born = by_position[position]
        alike = live[event]
        if is_born:
            alike.append(number)
            events.append(event)
        else:
            oldest = alike.index(number)
            del alike[oldest]
            newest = len(alike) - oldest
            which = newest if newest <= oldest else -1 - oldest
            events.append(event._replace(size_bytes=-event.size_bytes, which=which))
    return events


def peak_of(timeline: Timeline) -> Moment:
    """Return the first moment at which most was allocated in a recording."""
    position = timeline.allocated_bytes.index(timeline.peak_bytes)
    sizes = dict.fromkeys((*CATEGORIES, REMAINDERS), 0)
    name = ""
    for block, event in zip(timeline.blocks, _allocations(timeline), strict=True):
        if block.lives_at(position):
            sizes[event.category] = sizes.get(event.category, 0) + block.rounded_bytes
            sizes[REMAINDERS] += block.remainder_bytes
        if block.born == position - 1:
            name = event.place
    if not sizes[REMAINDERS]:
        del sizes[REMAINDERS]
    return Moment(name, sizes)


def _allocations(timeline: Timeline) -> list[BlockEvent]:
    """Return what each block of a timeline is, as the event that allocates it."""
    return [
        BlockEvent(
            block.rounded_bytes,
            _category(block, attribution.category),
            _place(block, timeline.stage_at(block.born + 1) or ""),
            block.stream,
        )
        for block, attribution in zip(timeline.blocks, attribute(timeline), strict=True)
    ]


def _category(block: BlockLife, category: Category) -> str:
    """Return what a block is: as its tensor or its lifetime tells, or a communication buffer.

    Gradients that ranks have reduced are theirs to keep.
    """
    kept = category not in (Category.PARAMETERS, Category.ACTIVATIONS, Category.TEMPORARIES)
    return str(category) if kept or not _is_sent(block) else GATHERED


def _place(block: BlockLife, part: str) -> str:
    """Return the part of a step, and the autograd node or the op that was at work in it."""
    if _is_sent(block):
        return f"{part}: {GATHERED}"
    for frame in block.frames:
        if frame.function.startswith("torch::autograd::"):
            return f"{part}: {frame.function.split('::')[2]}"
    return f"{part}: {_op(block)}"


def _is_sent(block: BlockLife) -> bool:
    """Whether ranks send the block to each other, or receive into it."""
    return _op(block).startswith(_COLLECTIVES) or any(
        code in frame.filename for frame in block.frames[:_NEAR] for code in _SENDING
    )


def _op(block: BlockLife) -> str:
    """Return the ATen op that took a block, such as 'mm'; '' if it was none."""
    for frame in block.frames:
        if "::_ops::" in frame.function:
            return frame.function.split("::")[2]
    return ""
