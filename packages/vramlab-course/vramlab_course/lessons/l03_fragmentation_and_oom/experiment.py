"""Lesson 03: memory that is reserved and free, and still of no use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from vramlab.cuda_rules.sizes import (
    LARGE_SEGMENT_BYTES,
    MIN_BLOCK_BYTES,
    SMALL_BLOCK_BYTES,
    SMALL_SEGMENT_BYTES,
    block_bytes,
    segment_size,
)
from vramlab.gpu import VirtualGPU
from vramlab.measure.figures import UNIT_BYTES
from vramlab.units import MIB, format_bytes
from vramlab_course.experiments.outcome import Difference, Outcome
from vramlab_course.experiments.published import figure
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.packing import stranded_fraction


@experiment(
    "fragment-800",
    lesson="03",
    question="When do 800 MiB not fit into 1000 MiB that are free?",
    source="003",
    figures=("fragment-800",),
)
def fragment_800() -> Outcome:
    """Rebuild the document's picture of fragmentation, and two cases in which it does not hold.

    The process may take no more than the two segments. In each of them 500 MiB are free, and a
    tensor still lives: 800 MiB are refused. With the two free blocks side by side they merge, and
    800 MiB fit. And apart, but with nothing alive beside them, their segments go back to the
    driver, and 800 MiB fit as well: what lives in a segment makes the difference.
    """
    request_bytes, *holes_bytes = (figure("fragment-800").nearest_bytes(i) for i in range(3))
    pinned_bytes = 50 * MIB
    limit_bytes = sum(holes_bytes) + 2 * pinned_bytes
    trial = Trial("fragment-800")
    with _limited_to(limit_bytes):
        with trial.stage(
            "two blocks of 500 MiB free, apart",
            expected("allocated", 2 * pinned_bytes),
            expected("reserved", limit_bytes),
        ):
            pinned, temporary = zip(
                *(_segment_of(pinned_bytes, hole_bytes) for hole_bytes in holes_bytes), strict=True
            )
            del temporary
        free_blocks = sorted(_free_blocks(), reverse=True)
        refused_bytes = 0
        try:
            with trial.stage("800 MiB"):
                _bytes_on_gpu(request_bytes)
        except torch.OutOfMemoryError:
            refused_bytes = request_bytes
        del pinned
        torch.cuda.empty_cache()

        with trial.stage(
            "two blocks of 500 MiB free, side by side",
            expected("allocated", 2 * pinned_bytes),
            expected("reserved", limit_bytes),
        ):
            neighbours = _segment_of(2 * pinned_bytes, *holes_bytes)
            neighbours = neighbours[:1]
        with trial.stage("800 MiB into the merged block", expected("growth", request_bytes)):
            tensor = _bytes_on_gpu(request_bytes)
        del neighbours, tensor
        torch.cuda.empty_cache()

        with trial.stage(
            "two blocks of 500 MiB free, apart, nothing beside them",
            expected("allocated", 0),
            expected(
                "reserved", sum(segment_size(block_bytes(hole_bytes)) for hole_bytes in holes_bytes)
            ),
        ):
            alone = [_bytes_on_gpu(hole_bytes) for hole_bytes in holes_bytes]
            alone.clear()
        with trial.stage(
            "800 MiB after both segments went back",
            expected("growth", request_bytes),
            expected("reserved", segment_size(block_bytes(request_bytes))),
        ):
            tensor = _bytes_on_gpu(request_bytes)
        del tensor
    trial.find("fragment-800", refused_bytes, predicted=request_bytes, index=0, part="refused")
    for index, name in ((1, "largest free block"), (2, "second largest free block")):
        trial.find(
            "fragment-800",
            free_blocks[index - 1],
            predicted=holes_bytes[index - 1],
            index=index,
            part=name,
        )
    return trial.outcome()


@experiment(
    "fragmentation-extreme",
    lesson="03",
    question="How much of the reserved memory can fragmentation waste?",
    source="003",
    figures=("fragmentation-extreme",),
)
def fragmentation_extreme(tensor_mib: int = 7, tensors: int = 100) -> Outcome:
    """Fill segments badly with tensors of one size; then let survivors hold theirs.

    Two tensors of 7 MiB share a segment of 20 MiB, and 6 MiB are left over: 30 %. It needs no
    unlucky program, only a size. Survivors waste more: one block of a little over 1 MiB keeps a
    whole segment of 20 MiB from going back.

    Args:
        tensor_mib: size of the tensors of one size, from 2 to 9 MiB.
        tensors: how many of them.
    """
    size_bytes = tensor_mib * MIB
    segments = -(-tensors // (LARGE_SEGMENT_BYTES // size_bytes))
    trial = Trial("fragmentation-extreme", tensor_mib=tensor_mib, tensors=tensors)
    with trial.stage(
        f"{tensors} tensors of {tensor_mib} MiB",
        expected("allocated", tensors * size_bytes),
        expected("reserved", segments * LARGE_SEGMENT_BYTES),
    ) as same_size:
        kept = [_bytes_on_gpu(size_bytes) for _ in range(tensors)]
    del kept
    torch.cuda.empty_cache()

    survivor_bytes = SMALL_BLOCK_BYTES + MIN_BLOCK_BYTES
    rest_bytes = LARGE_SEGMENT_BYTES - survivor_bytes
    halves_bytes = block_bytes(rest_bytes // 2), rest_bytes - block_bytes(rest_bytes // 2)
    with trial.stage(
        f"{segments} survivors, {survivor_bytes / MIB:.4f} MiB each",
        expected("allocated", segments * survivor_bytes),
        expected("reserved", segments * LARGE_SEGMENT_BYTES),
    ):
        survivors = []
        temporaries = []
        for _ in range(segments):
            survivors.append(_bytes_on_gpu(survivor_bytes))
            temporaries += [_bytes_on_gpu(half_bytes) for half_bytes in halves_bytes]
        temporaries.clear()
    del survivors
    measured = same_size.measurement
    wasted_bytes = measured.reserved_after_bytes - measured.allocated_after_bytes
    trial.find(
        "fragmentation-extreme",
        wasted_bytes / measured.reserved_after_bytes,
        predicted=stranded_fraction(size_bytes),
    )
    return trial.outcome()


# ---- The out-of-memory message ----

_TRIED, _TOTAL, _ALLOCATED, _FREE, _RESERVED = range(5)  # in oom-anatomy, as published
_SEGMENTS = 4


@dataclass(frozen=True)
class OutOfMemoryPlan:
    """Sizes that lead to the document's message, as close as blocks and segments allow.

    Four segments of equal size, in each of which the front lives and the rest is free.
    """

    request_bytes: int
    """What does not fit: its segment reads as the published 'Tried to allocate'."""
    segment_bytes: int
    """Of each of the four: a multiple of 2 MiB."""
    kept_bytes: int
    """Of each of the four: a multiple of 512 B."""
    free_bytes: int
    """What the driver has left."""

    @classmethod
    def of_the_document(cls) -> OutOfMemoryPlan:
        """Make it from the published figures."""
        published = figure("oom-anatomy")
        reserved_bytes = published.nearest_bytes(_RESERVED)
        return cls(
            request_bytes=published.nearest_bytes(_TRIED),
            segment_bytes=_round_to(reserved_bytes / _SEGMENTS, SMALL_SEGMENT_BYTES),
            kept_bytes=_round_to(published.nearest_bytes(_ALLOCATED) / _SEGMENTS, MIN_BLOCK_BYTES),
            free_bytes=published.nearest_bytes(_FREE),
        )

    @property
    def reserved_bytes(self) -> int:
        """Of the four segments."""
        return _SEGMENTS * self.segment_bytes

    @property
    def allocated_bytes(self) -> int:
        """Of the four tensors."""
        return _SEGMENTS * self.kept_bytes


def _others_on_the_gpu(gpu: VirtualGPU) -> None:
    """Let the rest of the GPU be in use, so that as much is free in the end as was published.

    The document's context was larger than today's (its driver loaded every kernel), and others may
    have used the GPU.
    """
    plan = OutOfMemoryPlan.of_the_document()
    device = gpu.machine.device(0)
    used_bytes = device.model.context_bytes + plan.reserved_bytes + plan.free_bytes
    device.memory.used_by_others_bytes = device.model.total_bytes - used_bytes


@experiment(
    "oom-anatomy",
    lesson="03",
    question="Why is there no memory for 1.24 GiB when 3.87 GiB of the cache are free?",
    source="003",
    figures=("oom-anatomy",),
    conditions=Conditions(
        gpu="V100-16GB",
        why="a total of 15.78 GiB is that of a 16 GB V100 with the drivers of the time",
        prepare=_others_on_the_gpu,
    ),
)
def oom_anatomy() -> Outcome:
    """Run into the document's out-of-memory message.

    Four tensors of one size are replaced by smaller ones, as when a batch of long sequences is
    followed by shorter ones: what is left of each segment is free, but none of the four pieces is
    large enough, the driver has less, and no segment can go back, because in each a tensor lives.

    Where the GPU has more memory than was in play, a further tensor (ballast) holds the rest.
    """
    plan = OutOfMemoryPlan.of_the_document()
    trial = Trial("oom-anatomy")
    torch.zeros(1, device="cuda")  # the CUDA context, before free memory is looked at
    torch.cuda.empty_cache()
    spare_bytes = torch.cuda.mem_get_info()[0] - plan.reserved_bytes - plan.free_bytes
    if spare_bytes < 0:
        raise RuntimeError(
            f"oom-anatomy needs {plan.reserved_bytes + plan.free_bytes:,} B that are free, and the "
            f"GPU has {-spare_bytes:,} B less: attach a larger GPU, such as V100-16GB"
        )
    ballast_bytes = spare_bytes // SMALL_SEGMENT_BYTES * SMALL_SEGMENT_BYTES
    if ballast_bytes < LARGE_SEGMENT_BYTES:
        ballast_bytes = 0
    with trial.stage(
        "four large tensors", expected("allocated", ballast_bytes + plan.reserved_bytes)
    ):
        ballast = _bytes_on_gpu(ballast_bytes)
        large = [_bytes_on_gpu(plan.segment_bytes) for _ in range(_SEGMENTS)]
    allocated_bytes = ballast_bytes + plan.allocated_bytes
    reserved_bytes = ballast_bytes + plan.reserved_bytes
    with trial.stage(
        "four smaller ones",
        expected("allocated", allocated_bytes),
        expected("reserved", reserved_bytes),
    ) as smaller:
        kept = []
        while large:
            large.pop()
            kept.append(_bytes_on_gpu(plan.kept_bytes))
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    tried_bytes = 0
    try:
        with trial.stage("one more"):
            _bytes_on_gpu(plan.request_bytes)
    except torch.OutOfMemoryError as error:
        tried_bytes = _tried_bytes(str(error))
    measured = smaller.measurement
    del ballast, kept
    # The message rounds, so what it will say is predicted, not what is behind it.
    to_print = format_bytes(segment_size(block_bytes(plan.request_bytes)))
    more = (Difference(ballast_bytes, "ballast: this GPU has more memory than was in play"),)
    trial.find(
        "oom-anatomy",
        tried_bytes,
        predicted=_tried_bytes(f"Tried to allocate {to_print}"),
        index=_TRIED,
        part="tried to allocate",
    )
    trial.find(
        "oom-anatomy",
        total_bytes,
        index=_TOTAL,
        part="total capacity",
        note="what a GPU offers depends on the driver: a 16 GB V100 had 15.78 GiB with older "
        "drivers, and has 15.77 GiB with today's (vramlab gpus V100-16GB)",
        quoted=True,
    )
    trial.find(
        "oom-anatomy",
        measured.allocated_after_bytes,
        predicted=allocated_bytes,
        index=_ALLOCATED,
        part="allocated",
        differences=more,
    )
    trial.find(
        "oom-anatomy",
        free_bytes,
        predicted=plan.free_bytes + spare_bytes - ballast_bytes,
        index=_FREE,
        part="free",
        differences=(
            Difference(
                spare_bytes - ballast_bytes, "the ballast is a multiple of 2 MiB, as segments are"
            ),
        ),
    )
    trial.find(
        "oom-anatomy",
        measured.reserved_after_bytes,
        predicted=reserved_bytes,
        index=_RESERVED,
        part="reserved",
        differences=more,
    )
    return trial.outcome()


def _tried_bytes(message: str) -> int:
    """Return what an out-of-memory message says was tried, as exactly as it was printed."""
    found = re.search(r"Tried to allocate ([0-9.]+) (bytes|KiB|MiB|GiB)", message)
    if found is None:
        raise ValueError(f"no 'Tried to allocate' in the message: {message}")
    unit_bytes = 1 if found[2] == "bytes" else UNIT_BYTES[found[2]]
    return round(float(found[1]) * unit_bytes)


def _round_to(size_bytes: float, granularity_bytes: int) -> int:
    """Return the nearest multiple of `granularity_bytes`."""
    return round(size_bytes / granularity_bytes) * granularity_bytes


# ---- Shaping memory ----


def _bytes_on_gpu(size_bytes: int) -> torch.Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8, device="cuda")


def _segment_of(*sizes_bytes: int) -> list[torch.Tensor]:
    """Tensors side by side in one new segment: it is allocated as a whole first, then reused."""
    _bytes_on_gpu(sum(sizes_bytes))
    return [_bytes_on_gpu(size_bytes) for size_bytes in sizes_bytes]


def _free_blocks() -> list[int]:
    """Sizes of the cache's free blocks, from torch's snapshot, in bytes."""
    return [
        block["size"]
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "inactive"
    ]


@contextmanager
def _limited_to(limit_bytes: int) -> Iterator[None]:
    """Let PyTorch reserve no more than `limit_bytes` on the current GPU."""
    _, total_bytes = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total_bytes))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
