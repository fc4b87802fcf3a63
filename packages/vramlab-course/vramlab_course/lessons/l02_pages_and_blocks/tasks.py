"""Exercise 02: what the caching allocator gives for a request, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from vramlab.cuda_rules.rounding import round_up
from vramlab.units import KIB, MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, of
from vramlab_classroom.judge.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    NotFixed,
    Observation,
    Predict,
)
from vramlab_course.tasks.batches import require_loaded, whole_numbers
from vramlab_course.tasks.gpus import GPU, allocate
from vramlab_course.tasks.readings import growth_bytes
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.results import on_host, require_close

T4 = GPU("T4")


# block_bytes: what one tensor takes


def _measure_block(requested_bytes: int) -> int:
    return growth_bytes(lambda: allocate(requested_bytes))


BLOCK = Predict(
    name="block_bytes",
    points=2,
    minutes=5,
    visible=tuple({"requested_bytes": size} for size in (4, 512, 513, 4000, 4096, 0)),
    hidden=lambda random: [
        *({"requested_bytes": random.randrange(1, MIB)} for _ in range(6)),
        {"requested_bytes": 512 * random.randrange(1, 2048)},
        {"requested_bytes": 0},
    ],
    measure=_measure_block,
    gpu=T4,
    mistakes=(
        Mistake(
            "You gave the requested size. The allocator rounds it up to a multiple of 512 bytes.",
            lambda requested_bytes: requested_bytes,
        ),
        Mistake(
            "You gave the size of the page (the segment) that PyTorch requests from the driver. "
            "It counts as reserved; allocated memory is the block inside it.",
            lambda requested_bytes: 2 * MIB,
        ),
        Mistake(
            "You rounded up once too often: a request that is already a multiple of 512 bytes is "
            "not rounded up.",
            lambda requested_bytes: (requested_bytes // 512 + 1) * 512,
        ),
        Mistake(
            "You gave a block to an empty tensor. It needs none.",
            lambda requested_bytes: max(512, round_up(requested_bytes, 512)),
        ),
    ),
)


# segment_bytes: what the driver is asked for


def _measure_segment(requested_bytes: int) -> int:
    return _measure_reserved([requested_bytes])


def _segment_by_request(requested_bytes: int) -> int:
    if requested_bytes <= MIB:
        return 2 * MIB
    return 20 * MIB if requested_bytes < 10 * MIB else round_up(requested_bytes, 2 * MIB)


def _kind_of_segment(requested_bytes: int) -> str:
    """Return the rule that decides: a border is a part of the rule above it."""
    block_bytes = round_up(requested_bytes, 512)
    if block_bytes <= MIB:
        return "small"
    return "shared" if block_bytes < 10 * MIB else "of its own size"


SEGMENT = Predict(
    name="segment_bytes",
    points=3,
    minutes=10,
    rule=_kind_of_segment,
    visible=tuple(
        {"requested_bytes": size}
        for size in (4, MIB, MIB + 1, 5 * MIB, 10 * MIB - 1, 10 * MIB, 11 * MIB)
    ),
    hidden=lambda random: [
        {"requested_bytes": random.randrange(1, MIB)},
        {"requested_bytes": MIB - random.randrange(1, 512)},
        *({"requested_bytes": random.randrange(MIB + 1, 10 * MIB - 512)} for _ in range(2)),
        {"requested_bytes": 10 * MIB - random.randrange(1, 512)},
        *({"requested_bytes": random.randrange(10 * MIB, 900 * MIB)} for _ in range(3)),
        {"requested_bytes": 2 * MIB * random.randrange(10, 400)},
    ],
    measure=_measure_segment,
    gpu=T4,
    mistakes=(
        Mistake(
            "You rounded every size up to 2 MiB. Between 1 MiB and 10 MiB the allocator requests "
            "a larger segment, and serves later requests from the remainder.",
            lambda requested_bytes: round_up(requested_bytes, 2 * MIB),
        ),
        Mistake(
            "You gave the size of the block. PyTorch requests a whole segment from the driver.",
            lambda requested_bytes: round_up(requested_bytes, 512),
        ),
        Mistake(
            "You used a 20 MiB segment for every large request. From 10 MiB on, a request gets a "
            "segment of its own size, rounded up to a multiple of 2 MiB.",
            lambda requested_bytes: (
                2 * MIB if requested_bytes <= MIB else round_up(requested_bytes, 20 * MIB)
            ),
        ),
        Mistake(
            "You compared the requested size with 10 MiB. The allocator compares the rounded "
            "size, so a request that rounds up to exactly 10 MiB gets its own segment.",
            _segment_by_request,
        ),
    ),
)


# reserved_bytes: several tensors share segments


def _measure_reserved(tensor_bytes: Sequence[int]) -> int:
    tensors = [allocate(size_bytes) for size_bytes in tensor_bytes]
    reserved_bytes = torch.cuda.memory_reserved()
    tensors.clear()
    return reserved_bytes


def _what_it_needs(tensor_bytes: Sequence[int]) -> str | None:
    """Return the rule that decides: the simplest way of packing that gets the sizes right."""
    right = _packed_best(tensor_bytes)
    others = {_packed_first(tensor_bytes) == right, _packed_best(tensor_bytes, max) == right}
    if others != {True}:
        return "the smallest piece" if others == {False} else None
    return "segments" if _packed_into_the_newest(tensor_bytes) == right else "all pieces"


def _small_tensors(random: Random, count: int, rule: str) -> Config:
    """Draw sizes that decide a rule, and that adding them up does not get right by accident."""
    while True:
        sizes = [random.randrange(300 * KIB, MIB) for _ in range(count)]
        if _what_it_needs(sizes) == rule and _packed_perfectly(sizes) != _packed_best(sizes):
            return {"tensor_bytes": sizes}


def _packed_best(tensor_bytes: Sequence[int], choose: Callable[..., int] = min) -> int:
    """Return the answer: for drawing cases, not for grading. `choose`s among pieces that fit."""
    rests: list[int] = []
    segments = 0
    for block_bytes in (round_up(size, 512) for size in tensor_bytes):
        fitting = [index for index, rest in enumerate(rests) if rest >= block_bytes]
        if not fitting:
            segments, fitting = segments + 1, [len(rests)]
            rests.append(2 * MIB)
        rests[choose(fitting, key=rests.__getitem__)] -= block_bytes
    return segments * 2 * MIB


def _packed_first(tensor_bytes: Sequence[int]) -> int:
    return _packed_best(tensor_bytes, lambda fitting, **_: fitting[0])


def _packed_perfectly(tensor_bytes: Sequence[int]) -> int:
    return round_up(sum(round_up(size, 512) for size in tensor_bytes), 2 * MIB)


def _packed_into_the_newest(tensor_bytes: Sequence[int]) -> int:
    segments, rest_bytes = 0, 0
    for size_bytes in tensor_bytes:
        block_bytes = round_up(size_bytes, 512)
        if block_bytes > rest_bytes:
            segments, rest_bytes = segments + 1, 2 * MIB
        rest_bytes -= block_bytes
    return segments * 2 * MIB


RESERVED = Predict(
    name="reserved_bytes",
    points=4,
    minutes=25,
    rule=_what_it_needs,
    visible=(
        {"tensor_bytes": [100, 100, 100]},
        {"tensor_bytes": [MIB, MIB, MIB]},
        {"tensor_bytes": [900 * KIB, 900 * KIB, 900 * KIB, 200 * KIB, 200 * KIB]},
        {"tensor_bytes": [700 * KIB, 700 * KIB, 700 * KIB, 900 * KIB, 600 * KIB, 400 * KIB]},
        {"tensor_bytes": [700 * KIB] * 8},  # two in a segment, though 5600 KiB are less than three
        # Pieces of 648 and 448 KiB are left for 400 and 500.
        {"tensor_bytes": [size * KIB for size in (500, 900, 700, 900, 400, 500)]},
    ),
    hidden=lambda random: [
        *(_small_tensors(random, count, "segments") for count in (5, 9)),
        *(_small_tensors(random, count, "all pieces") for count in (14, 18)),
        *(_small_tensors(random, count, "the smallest piece") for count in (20, 30)),
    ],
    measure=_measure_reserved,
    gpu=T4,
    mistakes=(
        Mistake(
            "You added up the sizes and rounded the sum up to 2 MiB. A block cannot span "
            "segments: the rest of a segment may be too small for the next block.",
            _packed_perfectly,
        ),
        Mistake(
            "You used one segment per tensor. Small blocks share segments.",
            lambda tensor_bytes: 2 * MIB * len(tensor_bytes),
        ),
        Mistake(
            "You searched only the newest segment. The allocator searches the free blocks of all "
            "segments and picks the smallest one that fits.",
            _packed_into_the_newest,
        ),
        Mistake(
            "You took the first free block that is large enough (first fit). The allocator picks "
            "the smallest one (best fit), so that larger ones stay free for larger blocks.",
            _packed_first,
        ),
    ),
)


# releasable_bytes: what empty_cache() releases


def _kept_and_freed(random: Random, *, has_rests: bool) -> Config:
    """Draw sizes; with rests, one shares its segment, so that something free has to stay."""
    least, most = (2, 9) if has_rests else (10, 30)  # from 10 on, a tensor has its own segment
    first = random.randrange(least, most)
    return {
        "kept": [first, *(random.randrange(least, 30) for _ in range(random.randrange(5)))],
        "freed": [random.randrange(least, 60) for _ in range(random.randrange(2, 8))],
    }


def _observe_cache(kept: Sequence[int], freed: Sequence[int]) -> Observation:
    """Allocate kept and freed tensors by turns, free some, and see what empty_cache() returns.

    Args:
        kept: sizes in MiB of tensors that stay.
        freed: sizes in MiB of tensors that go again.
    """
    staying, going = [], []
    for index in range(max(len(kept), len(freed))):
        staying += [allocate(size * MIB) for size in kept[index : index + 1]]
        going += [allocate(size * MIB) for size in freed[index : index + 1]]
    going.clear()
    stats = dict(torch.cuda.memory_stats())
    before_bytes = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    released_bytes = before_bytes - torch.cuda.memory_reserved()
    staying.clear()
    return Observation({"stats": stats}, released_bytes)


def _stat(stats: dict[str, int], name: str) -> int:
    return stats[f"{name}.all.current"]


RELEASABLE = Diagnose(
    name="releasable_bytes",
    points=3,
    minutes=20,
    visible=(
        {"kept": [4], "freed": [30]},
        {"kept": [4, 4], "freed": [4, 4]},
        {"kept": [4, 12], "freed": [6, 24, 40]},
        {"kept": [12], "freed": [30, 40]},
    ),
    rule=lambda kept, freed: min(*kept, *freed) < 10,
    hidden=lambda random: [
        _kept_and_freed(random, has_rests=has_rests) for has_rests in (True,) * 4 + (False,) * 2
    ],
    observe=_observe_cache,
    gpu=T4,
    mistakes=of(
        _stat,
        Mistake(
            "You gave all cached memory: reserved minus allocated. A segment that still contains "
            "a tensor cannot be released; memory_summary() calls its free part 'Non-releasable "
            "memory'.",
            lambda stats: _stat(stats, "reserved_bytes") - _stat(stats, "allocated_bytes"),
        ),
        Mistake(
            "You gave what stays reserved after empty_cache(), not what it releases.",
            lambda stats: _stat(stats, "active_bytes") + _stat(stats, "inactive_split_bytes"),
        ),
        (
            "You gave the non-releasable memory, which is the part that stays.",
            {"name": "inactive_split_bytes"},
        ),
    ),
)


# row_norms: a loop that keeps what it no longer needs

COLUMNS = 1024
LIMIT_BATCHES = 2.5
"""The program may hold two batches at a time, with some room, but not three."""


def _row_norms(load: Callable[[int], torch.Tensor], count: int) -> torch.Tensor:
    return torch.cat([load(index).square_().sum(dim=1).sqrt() for index in range(count)])


def _what_it_holds(run: Run) -> str:
    batch_bytes = 4 * run.case["rows"] * COLUMNS
    return (
        f"{run.ran_out} while it holds {format_bytes(run.peak_bytes)}; a batch has "
        f"{format_bytes(batch_bytes)}. Which names still hold a tensor when the next one is made?"
    )


def _same_norms(run: Run, expected: torch.Tensor) -> None:
    require_loaded(run.noted, run.case["count"])
    norms = run.results
    if norms.dtype != expected.dtype or norms.shape != expected.shape:
        raise NotFixed(
            f"It fits, but gives {norms.dtype} of shape {tuple(norms.shape)} instead of "
            f"{expected.dtype} of shape {tuple(expected.shape)}."
        )
    require_close(norms, expected, "It fits, but its results have changed.")


ROW_NORMS = Fix(
    name="row_norms",
    points=4,
    minutes=20,
    visible=({"rows": 3072, "count": 4},),
    hidden=lambda random: [
        {"rows": 512 * random.randrange(5, 10), "count": random.randrange(3, 6)} for _ in range(2)
    ],
    trial=Repair(
        gpu=T4.but(values=True),
        build=lambda run, rows, count: (
            run.noting(lambda index: whole_numbers(index, rows, COLUMNS)),
            count,
        ),
        reference=_row_norms,
        limit=lambda own: int(LIMIT_BATCHES * 4 * own.case["rows"] * COLUMNS),
        ran_out=_what_it_holds,
        collect=lambda run, norms: on_host(
            norms, "It fits, but does not give a tensor on the GPU any more."
        ),
        compare=_same_norms,
    ),
)

EXERCISE = Exercise(
    name="02_pages_and_blocks",
    module=__name__,
    tasks=(BLOCK, SEGMENT, RESERVED, RELEASABLE, ROW_NORMS),
    core=("segment_bytes", "row_norms"),
)
