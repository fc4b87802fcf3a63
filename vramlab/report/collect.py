"""Put together what a run has found: from the watch and the GPUs to a `Summary`."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import torch

from vramlab.catalogue import GPUModel
from vramlab.gpu import VirtualGPU
from vramlab.gpu.core.stack_frames import line_of
from vramlab.gpu.core.values.read_places import ReadPlace
from vramlab.gpu.ops.values import AnswerNan
from vramlab.measure import Category, Frame
from vramlab.native.report import SubstituteCall, calls_so_far
from vramlab.native.values import KnownValues, reads_by_line
from vramlab.report.evidence.asked_facts import SIZE, NotingModel
from vramlab.report.evidence.attribution import category_of
from vramlab.report.evidence.history_watch import HistoryWatch
from vramlab.report.evidence.peak import LiveBlock, LiveBlocks, PeakWatch
from vramlab.report.evidence.reasons import (
    reasons_of_libraries,
    reasons_of_operators,
    reasons_of_steps,
    reasons_of_values,
)
from vramlab.report.evidence.value_flow import ValueFlow
from vramlab.report.evidence.watch import Watch
from vramlab.report.running.cuda_wheels import wheel_hint
from vramlab.report.running.missing_package import missing_package_hint
from vramlab.report.running.native_hint import (
    foreign_library_hint,
    native_hint,
    refused_call_hint,
)
from vramlab.report.running.program import Ending
from vramlab.report.running.ranks import launched_rank, rank_of_world
from vramlab.report.showing.verdict import source
from vramlab.report.summary import DeviceUse, LineUse, OutOfMemoryUse, Summary
from vramlab.source_files import CodeOwner, owner_of


@dataclass(frozen=True)
class UsedDevice:
    """One GPU that the program could use."""

    index: int
    """CUDA device index."""
    total_bytes: int
    """Memory of the GPU."""
    context_bytes: int
    """The CUDA context; 0 if the program did not use it."""
    context_is_estimated: bool
    """Whether the catalogue's figure is an estimate."""


@dataclass(frozen=True)
class Ground:
    """What a program ran on."""

    gpu: str
    """Name in the catalogue."""
    engine: str
    """`portable` or `native`."""
    why: str
    """Why that engine; empty: there was no choice."""
    torch_version: str
    """The PyTorch whose rules were followed, or that ran."""
    devices: tuple[UsedDevice, ...]
    """The GPUs, by index."""
    value_reads: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """As in `Summary`."""
    read_places: tuple[ReadPlace, ...] = ()
    """Where in the code values were read that do not exist."""
    counted_by_outputs: Mapping[str, int] = field(default_factory=dict)
    """As in `Summary`."""
    unknown_workspaces: int = 0
    """How many convolutions have a workspace that is not known."""
    caveats: tuple[str, ...] = ()
    """As in `Summary`."""
    substitute_calls: tuple[SubstituteCall, ...] = ()
    """As in `Summary`."""
    skipped_kernels: Mapping[str, int] = field(default_factory=dict)
    """As in `Summary`."""
    gpu_facts: tuple[str, ...] | None = None
    """As in `Summary`."""


@dataclass(frozen=True)
class RunningEngine:
    """GPUs that a program runs on, and what can be told of them."""

    gpu: str
    """Name in the catalogue."""
    attached: AbstractContextManager[Any]
    """In it, the program has the GPUs."""
    watch: Watch | HistoryWatch
    """What is seen of the program."""
    devices: Callable[[], tuple[UsedDevice, ...]]
    """The GPUs, also for other threads while the program runs."""
    ground: Callable[[], Ground]
    """Everything, for when the program has ended: it may change this while it runs."""


def virtual_devices(gpu: VirtualGPU) -> tuple[UsedDevice, ...]:
    """Describe the memory of virtual GPUs."""
    return tuple(
        UsedDevice(
            device.index,
            device.memory.total_bytes,
            device.memory.context_bytes,
            device.model.is_estimated("context_bytes"),
        )
        for device in gpu.machine.devices
    )


def native_devices(model: GPUModel, watch: HistoryWatch) -> tuple[UsedDevice, ...]:
    """Describe the memory of the GPUs of this process, which runs on the native engine."""
    watch.count()

    def has_context(device: PeakWatch) -> bool:
        return bool(device.reserved_until_now_bytes or device.out_of_memory_count)

    return tuple(
        UsedDevice(
            index,
            model.total_bytes,
            model.context_bytes if has_context(device) else 0,
            model.is_estimated("context_bytes"),
        )
        for index, device in enumerate(watch.devices)
    )


def virtual_ground(gpu: VirtualGPU, why: str) -> Ground:
    """Describe a virtual GPU, after a program has run on it."""
    return Ground(
        gpu=gpu.name,
        engine="portable",
        why=why,
        torch_version=".".join(map(str, gpu.machine.torch_version)),
        devices=virtual_devices(gpu),
        value_reads=_value_reads(gpu),
        read_places=tuple(gpu.values.places.places) if isinstance(gpu.values, AnswerNan) else (),
        counted_by_outputs=gpu.unreviewed(),
        unknown_workspaces=sum(device.cudnn.unknown_count for device in gpu.machine.devices),
        caveats=tuple(dict.fromkeys((*gpu.machine.caveats, *_of_cudnn(gpu)))),
        skipped_kernels=gpu.machine.skipped_kernels,
        gpu_facts=_facts_asked(gpu),
    )


def _of_cudnn(gpu: VirtualGPU) -> Iterator[str]:
    """Say of each GPU where the workspaces of convolutions come from."""
    for device in gpu.machine.devices:
        if (origins := device.cudnn.origins_text()) is not None:
            yield origins


def native_ground(model: GPUModel, watch: HistoryWatch, values: KnownValues, why: str) -> Ground:
    """Describe the GPUs of this process, which runs on the native engine, after a program has."""
    return Ground(
        gpu=model.name,
        engine="native",
        why=why,
        torch_version=str(torch.__version__),
        devices=native_devices(model, watch),
        value_reads=reads_by_line(values.reads),
        read_places=tuple(values.places.places),
        substitute_calls=tuple(calls_so_far()),
    )


def summarize(
    ground: Ground,
    watch: Watch | HistoryWatch,
    program: str,
    folder: str,
    ending: Ending,
    seconds: float,
) -> Summary:
    """Return what a program did to the memory of GPUs.

    Args:
        ground: where it ran.
        watch: what was seen.
        program: its command line.
        folder: where it was started.
        ending: how it ended.
        seconds: how long it ran.
    """
    out_of_memory = _ran_out(ending.error)
    failed = tuple(_out_of_memory(watch.devices))
    rank, world_size = rank_of_world()
    flow = ValueFlow(_files_of_program)
    devices = tuple(
        _device_use(device, seen, out_of_memory)
        for device, seen in zip(ground.devices, watch.devices, strict=True)
    )
    peak_bytes = max((device.peak_allocated_bytes for device in devices), default=0)
    reasons = [
        *reasons_of_values(flow.decisions(ground.read_places), folder),
        *reasons_of_operators(watch.operators, peak_bytes),
        *reasons_of_libraries(ground.unknown_workspaces, ground.substitute_calls),
        *reasons_of_steps(ending.stopped_by, watch.steps.counts),
    ]
    refused = refused_call_hint(
        ending.error, ground.substitute_calls, _line_of_failure(ending.error)
    )
    return Summary(
        program=program,
        folder=folder,
        gpu=ground.gpu,
        gpu_count=len(ground.devices),
        engine=ground.engine,
        why=ground.why,
        torch_version=ground.torch_version,
        seconds=seconds,
        status=ending.status,
        error=None if ending.error is None else _named(ending.error),
        stopped_by=ending.stopped_by,
        stuck_at=ending.stuck_at,
        counts=replace(watch.steps.counts),
        ended_out_of_memory=out_of_memory,
        devices=devices,
        out_of_memory=failed,
        value_reads={line: dict(reads) for line, reads in ground.value_reads.items()},
        read_of_failure=(
            None if refused else _read_of_failure(flow, ground.read_places, ending.error)
        ),
        counted_by_outputs=dict(ground.counted_by_outputs),
        substitute_calls=ground.substitute_calls,
        skipped_kernels=dict(ground.skipped_kernels),
        caveats=ground.caveats,
        unsure_operators=dict(watch.operators.confirmations),
        reasons=tuple(dict.fromkeys(reasons)),
        hint=refused
        or _library_hint(ground, ending.error)
        or native_hint(ending.error)
        or missing_package_hint(ending.error),
        gpu_facts=_facts(ground, failed, out_of_memory),
        rank=rank,
        world_size=world_size,
        is_told_by_first_rank=launched_rank() > 0,
    )


def _files_of_program() -> list[str]:
    """List the files of the program's own modules that are imported."""
    files = (
        getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if not name.startswith("vramlab")
    )
    return [file for file in files if file and owner_of(file) is CodeOwner.PROGRAM]


def _failed_at(error: BaseException | None) -> TracebackType | None:
    """Find where in the program an error passed last."""
    found = None
    traceback = None if error is None else error.__traceback__
    while traceback is not None:
        if owner_of(traceback.tb_frame.f_code.co_filename) is CodeOwner.PROGRAM:
            found = traceback
        traceback = traceback.tb_next
    return found


def _line_of_failure(error: BaseException | None) -> str | None:
    found = _failed_at(error)
    return None if found is None else line_of(found.tb_frame.f_code, found.tb_lasti)


def _read_of_failure(
    flow: ValueFlow, places: Sequence[ReadPlace], error: BaseException | None
) -> str | None:
    """Name the line of the read that an error depends on; None: it depends on none."""
    found = _failed_at(error)
    if found is None:
        return None
    place = flow.leads_to(places, found.tb_frame.f_code, found.tb_lasti)
    return None if place is None else line_of(place.code, place.instruction)


def _library_hint(ground: Ground, error: BaseException | None) -> str | None:
    """Return what to say of a package's library that does not load."""
    find = foreign_library_hint if ground.engine == "native" else wheel_hint
    return find(error, str(torch.__version__))


def _ran_out(error: BaseException | None) -> bool:
    """Return whether an exception comes from running out of memory; libraries raise their own."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _named(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _device_use(device: UsedDevice, watch: PeakWatch, ran_out: bool) -> DeviceUse:
    peak = live = watch.peak()
    failed = watch.last_out_of_memory if ran_out else None
    if failed is not None:
        live = failed.live
    categories = {block: category_of(block) for block in live.blocks}
    return DeviceUse(
        index=device.index,
        total_bytes=device.total_bytes,
        context_bytes=device.context_bytes,
        context_is_estimated=device.context_is_estimated,
        peak_reserved_bytes=watch.peak_reserved_bytes,
        peak_allocated_bytes=peak.allocated_bytes,
        at_out_of_memory=failed is not None,
        allocated_bytes=live.allocated_bytes,
        reserved_bytes=live.reserved_bytes,
        category_bytes=_with_earlier(live, _by_category(live.blocks, categories)),
        lines=_line_uses(live, categories),
        stages=watch.stages.uses(),
    )


def _with_earlier(live: LiveBlocks, sums: dict[Category, int]) -> dict[Category, int]:
    """Add what lay on the GPU before anybody watched."""
    earlier_bytes = live.allocated_bytes - sum(sums.values())
    return {**sums, Category.OTHER: earlier_bytes} if earlier_bytes > 0 else sums


def _by_category(
    blocks: Sequence[LiveBlock], categories: dict[LiveBlock, Category]
) -> dict[Category, int]:
    sums: Counter[Category] = Counter()
    for block in blocks:
        sums[categories[block]] += block.size_bytes
    return {category: sums[category] for category in Category if category in sums}


def _line_uses(live: LiveBlocks, categories: dict[LiveBlock, Category]) -> tuple[LineUse, ...]:
    blocks_of: dict[tuple[Frame | None, Frame | None], list[LiveBlock]] = defaultdict(list)
    for block in live.blocks:
        blocks_of[block.origin.line, block.origin.caller].append(block)
    uses = [
        LineUse(
            line,
            caller,
            sum(block.size_bytes for block in blocks),
            len(blocks),
            dict(sorted(_by_category(blocks, categories).items(), key=lambda item: -item[1])),
            "" if line is None else source(line),
        )
        for (line, caller), blocks in blocks_of.items()
    ]
    return tuple(sorted(uses, key=lambda use: -use.size_bytes))


def _out_of_memory(watches: Sequence[PeakWatch]) -> list[OutOfMemoryUse]:
    return [
        OutOfMemoryUse(
            device=failed.device,
            count=watch.out_of_memory_count,
            segment_bytes=failed.segment_bytes,
            line=failed.origin.line,
            in_backward=failed.origin.in_backward,
        )
        for watch in watches
        if (failed := watch.last_out_of_memory) is not None
    ]


def _facts_asked(gpu: VirtualGPU) -> tuple[str, ...] | None:
    if not isinstance(gpu.model, NotingModel):
        return None
    fractions = [device.allocator.memory_fraction for device in gpu.machine.devices]
    return gpu.model.names_read(by_size=any(fraction != 1 for fraction in fractions))


def _facts(
    ground: Ground, failed: Sequence[OutOfMemoryUse], ended_by_it: bool
) -> tuple[str, ...] | None:
    """Add the memory's size where the program went on after it had run out."""
    went_on = sum(each.count for each in failed) > ended_by_it
    if ground.gpu_facts is None or not went_on:
        return ground.gpu_facts
    return tuple(sorted({*ground.gpu_facts, SIZE}))


def _value_reads(gpu: VirtualGPU) -> dict[str, dict[str, int]]:
    """List values that were read, in the order of first reads; none where reads are errors."""
    return reads_by_line(gpu.values.reads) if isinstance(gpu.values, AnswerNan) else {}
