"""Exercise 03: memory that is reserved, free, and in the wrong pieces."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from vramlab.cuda_rules.rounding import round_up
from vramlab.errors import AllocatorConfigError, UnsupportedOnVirtualGPU
from vramlab.units import MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, instead
from vramlab_classroom.judge.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    NotFixed,
    Observation,
    Predict,
)
from vramlab_course.tasks.gpus import GPU, allocate, device, leave
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.results import on_host, require_close

T4 = GPU("T4")

PAGE_MIB = 2
"""What the driver gives is a multiple of this; all sizes below are, too."""


def _arrange(
    pinned_mib: Sequence[int], holes_mib: Sequence[int], empty_mib: Sequence[int]
) -> list[torch.Tensor]:
    """Leave free pieces beside live tensors, and segments that are free as a whole.

    Returns:
        The live tensors.
    """
    live, temporary = [], []
    for pinned, hole in zip(pinned_mib, holes_mib, strict=True):
        allocate((pinned + hole) * MIB)  # a segment, given back at once
        live.append(allocate(pinned * MIB))
        temporary.append(allocate(hole * MIB))
    temporary += [allocate(size * MIB) for size in empty_mib]
    return live


# reserved_bytes: tensors of one size


def _measure_reserved(tensor_bytes: int, count: int) -> int:
    tensors = [allocate(tensor_bytes) for _ in range(count)]
    reserved_bytes = torch.cuda.memory_reserved()
    tensors.clear()
    return reserved_bytes


RESERVED = Predict(
    name="reserved_bytes",
    points=2,
    minutes=10,
    rule=lambda tensor_bytes, count: tensor_bytes < 10 * MIB,
    visible=(
        {"tensor_bytes": 7 * MIB, "count": 8},
        {"tensor_bytes": 3 * MIB, "count": 13},
        {"tensor_bytes": 11 * MIB, "count": 3},
    ),
    hidden=lambda random: [
        *(
            {
                "tensor_bytes": random.randrange(MIB + 1, 10 * MIB - 512),
                "count": random.randrange(3, 40),
            }
            for _ in range(5)
        ),
        {"tensor_bytes": 5 * MIB, "count": random.randrange(9, 30)},
        *(
            {"tensor_bytes": random.randrange(11, 99) * MIB + 512, "count": random.randrange(2, 9)}
            for _ in range(2)
        ),
    ],
    measure=_measure_reserved,
    gpu=T4,
    mistakes=(
        Mistake(
            "You added up the tensors and rounded the sum. A tensor cannot span segments: the "
            "rest of a segment may be too small for the next one.",
            lambda tensor_bytes, count: round_up(
                tensor_bytes * count, (20 if tensor_bytes < 10 * MIB else 2) * MIB
            ),
        ),
        Mistake(
            "You used one segment per tensor. Below 10 MiB, tensors share segments of 20 MiB.",
            lambda tensor_bytes, count: (
                count * (20 * MIB if tensor_bytes < 10 * MIB else round_up(tensor_bytes, 2 * MIB))
            ),
        ),
        Mistake(
            "You put all tensors into segments of 20 MiB. From 10 MiB on, a tensor gets a segment "
            "of its own size, rounded up to 2 MiB.",
            lambda tensor_bytes, count: (
                round_up(count, max(1, 20 * MIB // tensor_bytes))
                // max(1, 20 * MIB // tensor_bytes)
                * round_up(tensor_bytes, 20 * MIB)
            ),
        ),
    ),
)


# why_out_of_memory: what an out-of-memory message says


def _observe_failure(
    reason: str, request_mib: int, held_mib: int, hole_mib: int, holes: int
) -> Observation:
    """Run out of memory for a reason, and note the numbers of PyTorch's message.

    Args:
        reason: "pieces", "others" or "tensors".
        request_mib: the tensor for which there is no memory.
        held_mib: what tensors of this process hold besides; nothing with "others".
        hole_mib: size of each free piece that lies beside a live tensor.
        holes: how many such pieces.
    """
    held = _arrange([30] * holes, [hole_mib] * holes, [])
    if reason != "others":
        held.append(allocate(held_mib * MIB))
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    left_bytes = (request_mib // 4 * 2) * MIB
    if reason == "others":
        leave(left_bytes)
    else:
        held.append(allocate((free_bytes - left_bytes) // (2 * MIB) * 2 * MIB))
    try:
        allocate(request_mib * MIB)
    except torch.cuda.OutOfMemoryError:
        free_bytes, _ = torch.cuda.mem_get_info()
    else:
        raise RuntimeError(f"{request_mib} MiB should not have fitted")
    reserved_bytes = torch.cuda.memory_reserved()
    numbers = {
        "tried": request_mib * MIB,
        "total": total_bytes,
        "free": free_bytes,
        "in_use_by_process": device().used_bytes,
        "allocated": torch.cuda.memory_allocated(),
        "reserved_but_unallocated": reserved_bytes - torch.cuda.memory_allocated(),
    }
    held.clear()
    return Observation({"numbers": numbers}, reason)


def _failure(random: Random, reason: str) -> Config:
    request_mib = 4 * random.randrange(100, 250)
    enough = reason == "pieces"
    return {
        "reason": reason,
        "request_mib": request_mib,
        "held_mib": 2 * random.randrange(100, 1000),
        # Together the pieces are more than the request, or nowhere near it.
        "hole_mib": request_mib // 4 * 2 if enough else 20,
        "holes": random.randrange(3, 6) if enough else random.randrange(1, 4),
    }


def _why(numbers: dict[str, int]) -> str:
    others = numbers["total"] - numbers["free"] - numbers["in_use_by_process"]
    if numbers["free"] + numbers["reserved_but_unallocated"] >= numbers["tried"]:
        return "pieces"
    return "others" if numbers["free"] + others >= numbers["tried"] else "tensors"


WHY = Diagnose(
    name="why_out_of_memory",
    points=3,
    minutes=20,
    visible=tuple(
        {
            "reason": reason,
            "request_mib": 800,
            "held_mib": 1000,
            "hole_mib": 400 if reason == "pieces" else 20,
            "holes": 3,
        }
        for reason in ("pieces", "others", "tensors")
    ),
    hidden=lambda random: [
        _failure(random, reason)
        for reason in ("pieces", "others", "tensors", "pieces", "tensors", "others")
    ],
    observe=_observe_failure,
    gpu=T4,
    mistakes=(
        Mistake(
            "You blamed fragmentation because some memory is reserved but unallocated. Check "
            "whether it would be enough for the request in one piece.",
            lambda numbers: "pieces" if numbers["reserved_but_unallocated"] else _why(numbers),
        ),
        Mistake(
            "You never answered 'others'. Memory that is neither free nor in use by this process "
            "belongs to other processes.",
            instead(_why, {"others": "tensors"}),
        ),
        Mistake(
            "You compared allocated memory with the request. Ask how much would be free if the "
            "free pieces were contiguous, or without the other processes.",
            lambda numbers: "tensors" if numbers["allocated"] >= numbers["tried"] else "others",
        ),
    ),
)


# largest_tensor: what could still be allocated


def _observe_pieces(
    free_mib: int, pinned_mib: Sequence[int], holes_mib: Sequence[int], empty_mib: Sequence[int]
) -> Observation:
    """See what the allocator holds, and try which tensor is the largest that it can still give.

    Args:
        free_mib: what the driver has left in the end.
        pinned_mib: live tensors, each in a segment of its own.
        holes_mib: the free piece beside each of them.
        empty_mib: segments without a live tensor.
    """
    limit_mib = free_mib + sum(pinned_mib) + sum(holes_mib) + sum(empty_mib)

    def fits(size_mib: int) -> bool:
        with T4.attached():
            leave(limit_mib * MIB)
            live = _arrange(pinned_mib, holes_mib, empty_mib)
            try:
                live.append(allocate(size_mib * MIB))
            except torch.cuda.OutOfMemoryError:
                return False
            finally:
                live.clear()
        return True

    with T4.attached():
        leave(limit_mib * MIB)
        live = _arrange(pinned_mib, holes_mib, empty_mib)
        free_bytes, _ = torch.cuda.mem_get_info()
        segments = [
            {
                "total_size": segment["total_size"],
                "blocks": [
                    {"size": block["size"], "state": block["state"]} for block in segment["blocks"]
                ],
            }
            for segment in torch.cuda.memory_snapshot()
        ]
        live.clear()
    sizes_mib = range(PAGE_MIB, limit_mib + 1, PAGE_MIB)
    largest_mib = sizes_mib[bisect_left(sizes_mib, True, key=lambda size: not fits(size)) - 1]
    return Observation({"segments": segments, "free_bytes": free_bytes}, largest_mib * MIB)


def _pieces(random: Random, segments: int, empty: int) -> Config:
    def sizes(count: int, least: int, most: int) -> list[int]:
        return [PAGE_MIB * random.randrange(least, most) for _ in range(count)]

    return {
        "free_mib": PAGE_MIB * random.randrange(5, 100),
        "pinned_mib": sizes(segments, 5, 60),
        "holes_mib": sizes(segments, 10, 400),
        "empty_mib": sizes(empty, 10, 200),
    }


def _is_beside_a_tensor(
    free_mib: int, pinned_mib: Sequence[int], holes_mib: Sequence[int], empty_mib: Sequence[int]
) -> bool:
    """Return whether the largest piece lies beside a live tensor, or can come from the driver."""
    return max(holes_mib) > free_mib + sum(empty_mib)


def _pieces_with(random: Random, segments: int, empty: int, beside_a_tensor: bool) -> Config:
    while True:
        case = _pieces(random, segments, empty)
        if _is_beside_a_tensor(**case) == beside_a_tensor:
            return case


def _inactive(segment: dict[str, Any]) -> list[int]:
    return [block["size"] for block in segment["blocks"] if block["state"] == "inactive"]


def _in_use(segment: dict[str, Any]) -> bool:
    return len(_inactive(segment)) < len(segment["blocks"])


def _free_pieces(segments: Sequence[dict[str, Any]]) -> list[int]:
    return [size for segment in segments for size in _inactive(segment)]


LARGEST = Diagnose(
    name="largest_tensor",
    points=4,
    minutes=25,
    visible=(
        {"free_mib": 100, "pinned_mib": [50, 50], "holes_mib": [500, 500], "empty_mib": []},
        {"free_mib": 100, "pinned_mib": [50], "holes_mib": [300], "empty_mib": [200, 120]},
        {"free_mib": 400, "pinned_mib": [20], "holes_mib": [90], "empty_mib": []},
    ),
    hidden=lambda random: [
        _pieces_with(random, segments, empty, beside_a_tensor)
        for segments, empty, beside_a_tensor in (
            (3, 0, True),
            (1, 3, False),
            (2, 2, True),
            (4, 3, False),
            (2, 5, False),
            (4, 2, True),
        )
    ],
    rule=_is_beside_a_tensor,
    observe=_observe_pieces,
    mistakes=(
        Mistake(
            "You added up all free memory. A free block next to a live tensor cannot be merged "
            "with blocks of other segments.",
            lambda segments, free_bytes: free_bytes + sum(_free_pieces(segments)),
        ),
        Mistake(
            "You look at each piece, and at what the driver has, one by one. Segments without a "
            "live tensor go back to the driver before PyTorch gives up: then they count together.",
            lambda segments, free_bytes: max(free_bytes, *_free_pieces(segments)),
        ),
        Mistake(
            "You counted only the cached blocks. The driver has free memory too.",
            lambda segments, free_bytes: max(_free_pieces(segments)),
        ),
        Mistake(
            "You forget the pieces beside live tensors. The largest of them may be larger than "
            "all that the driver can come to have.",
            lambda segments, free_bytes: (
                free_bytes + sum(s["total_size"] for s in segments if not _in_use(s))
            ),
        ),
    ),
)


# The program of the last two tasks


def _need_mib(lengths: Sequence[int]) -> int:
    """All features and the largest hidden state, in segments of their own.

    One position of a hidden state takes 1024 x 256 x 4 B, which is 1 MiB.
    """
    features_mib = sum(round_up(length * 6 // 10, PAGE_MIB) for length in lengths)
    return features_mib + max(lengths)


def _load(length: int) -> torch.Tensor:
    """Make a hidden state: a number of its own in each position, which nothing else takes."""
    hidden = torch.empty(length, 1024, 256, device="cuda")
    for position, numbers in enumerate(hidden):
        numbers.fill_(length + position / length)
    return hidden


def _collect(load: Callable[[int], torch.Tensor], lengths: Sequence[int]) -> list[torch.Tensor]:
    """Run the original program: what it keeps of a batch fragments another batch's segment."""
    features = []
    for length in lengths:
        hidden = load(length)
        features.append(hidden[: length * 6 // 10].clone())
        del hidden
    return features


def _lengths(first: int, step: int, batches: int) -> list[int]:
    return [first + step * index for index in range(batches)]


# settings: of the allocator, under which the program fits


def _with_settings(answer: object, **case: int) -> GPU:
    """Return the GPU with these settings."""
    if type(answer) is not str:
        raise NotFixed("settings should be a text, as in PYTORCH_CUDA_ALLOC_CONF.")
    gpu = T4.but(alloc_conf=answer)
    try:
        gpu.attached()
    except (AllocatorConfigError, UnsupportedOnVirtualGPU) as error:
        raise NotFixed(f"PyTorch would not take this: {error}") from error
    return gpu


def _collect_anything(run: Run) -> list[torch.Tensor]:
    return _collect(
        lambda length: torch.empty(length, 1024, 256, device="cuda"), _lengths(**run.case)
    )


def _pieces_left(run: Run) -> str:
    pieces_bytes = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return (
        f"With {run.program.alloc_conf!r} it still runs out of memory, while "
        f"{format_bytes(pieces_bytes)} are reserved and free, in pieces."
    )


def _reserved_report(run: Run) -> str:
    return f"peak {format_bytes(max(run.reserved_bytes))} reserved"


SETTINGS = Fix(
    name="settings",
    points=2,
    minutes=10,
    is_value=True,
    visible=({"first": 200, "step": 24, "batches": 12},),
    hidden=lambda random: [
        {
            "first": 2 * random.randrange(80, 120),
            "step": 2 * random.randrange(10, 16),
            "batches": random.randrange(11, 15),
        }
        for _ in range(2)
    ],
    trial=Repair(
        gpu=lambda with_settings: with_settings,
        accept=_with_settings,
        call=_collect_anything,
        # expandable segments keep pages that are part free
        limit=lambda own: (_need_mib(_lengths(**own.case)) + 300) * MIB,
        by_others=True,
        ran_out=_pieces_left,
        report=_reserved_report,
    ),
)


# collect: the program, made to fit without any setting


def _pytorch_says(run: Run) -> str:
    message = f"It still runs out of memory: {run.said}"
    message = message.partition(" If reserved but")[0]
    if len(run.noted) > 1 and run.noted == sorted(run.noted):
        return (
            f"{message} You load from the shortest to the longest. Does a hidden state fit into "
            "the piece that a shorter one has left?"
        )
    return message


def _features(run: Run, features: object) -> list[torch.Tensor]:
    batches = run.case["batches"]
    if not isinstance(features, tuple | list) or len(features) != batches:
        raise NotFixed(f"It fits, but does not give a list of {batches} tensors any more.")
    run.require_stayed(MIB, "Everything has to stay on the GPU: which hidden state comes first?")
    return [
        on_host(feature, f"It fits, but item {index} is no tensor on the GPU any more.")
        for index, feature in enumerate(features)
    ]


def _same_features(run: Run, expected: Sequence[torch.Tensor]) -> None:
    for index, (feature, wanted) in enumerate(zip(run.results, expected, strict=True)):
        if feature.shape != wanted.shape or feature.dtype != wanted.dtype:
            raise NotFixed(
                f"It fits, but item {index} is {feature.dtype} of shape {tuple(feature.shape)} "
                f"instead of {wanted.dtype} of shape {tuple(wanted.shape)}. Are they in order?"
            )
        message = f"It fits, but the values of item {index} have changed."
        require_close(feature, wanted, message)


COLLECT = Fix(
    name="collect",
    points=4,
    minutes=25,
    visible=({"first": 20, "step": 4, "batches": 10},),
    hidden=lambda random: [
        {"first": 2 * random.randrange(9, 12), "step": 4, "batches": random.randrange(9, 12)}
    ],
    trial=Repair(
        gpu=T4.but(values=True),
        build=lambda run, **case: (run.noting(_load), _lengths(**case)),
        reference=_collect,
        limit=lambda own: (_need_mib(_lengths(**own.case)) + 40) * MIB,
        by_others=True,
        ran_out=_pytorch_says,
        collect=_features,
        compare=_same_features,
        report=_reserved_report,
    ),
)

EXERCISE = Exercise(
    name="03_fragmentation_and_oom",
    module=__name__,
    tasks=(RESERVED, WHY, LARGEST, SETTINGS, COLLECT),
    core=("why_out_of_memory", "settings"),
)
