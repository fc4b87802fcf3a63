"""Exercise 01: what the driver counts for a process, and who has a GPU's memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from random import Random

import pynvml

from vramlab import catalogue
from vramlab.units import MIB, format_bytes
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
from vramlab_course.tasks.batches import whole_numbers
from vramlab_course.tasks.gpus import GPU, allocate, device
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.results import on_host, require_close

GPUS = ("T4", "RTX-3090", "A10", "L4", "V100-16GB")
"""GPUs of the hidden cases; their contexts all differ, so that a context names its GPU."""


def _context_bytes(gpu: str) -> int:
    return catalogue.find(gpu).context_bytes


def _total_bytes(gpu: str) -> int:
    return catalogue.find(gpu).total_bytes


def _gpu_with(context_bytes: int) -> str:
    return next(gpu for gpu in GPUS if _context_bytes(gpu) == context_bytes)


def _used_by_this_process() -> int:
    """Return what nvidia-smi lists for this process."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    pynvml.nvmlShutdown()
    (used_bytes,) = (each.usedGpuMemory for each in processes if each.pid == os.getpid())
    return int(used_bytes)


# process_bytes: what nvidia-smi lists for a process


def _measure_process(
    context_bytes: int, kept_mib: Sequence[int], freed_mib: Sequence[int], emptied: bool
) -> int:
    kept = [allocate(size * MIB) for size in kept_mib]
    freed = [allocate(size * MIB) for size in freed_mib]
    freed.clear()
    if emptied:
        torch.cuda.empty_cache()
    used_bytes = _used_by_this_process()
    kept.clear()
    return used_bytes


def _listed(
    context_bytes: int, kept_mib: Sequence[int], freed_mib: Sequence[int], emptied: bool
) -> int:
    """Return the answer: for naming mistakes, not for grading."""
    return context_bytes + MIB * (sum(kept_mib) + (0 if emptied else sum(freed_mib)))


def _sizes(random: Random, least: int, most: int) -> list[int]:
    """Even numbers of MiB from 10 on: each tensor gets a segment of its own size."""
    return [2 * random.randrange(5, 200) for _ in range(random.randrange(least, most))]


def _process(random: Random, emptied: bool) -> Config:
    return {
        "context_bytes": _context_bytes(random.choice(GPUS)),
        "kept_mib": _sizes(random, 1, 5),
        "freed_mib": _sizes(random, 1, 5),
        "emptied": emptied,
    }


PROCESS = Predict(
    name="process_bytes",
    points=2,
    minutes=10,
    visible=(
        {"context_bytes": 256 * MIB, "kept_mib": [300], "freed_mib": [], "emptied": False},
        {"context_bytes": 256 * MIB, "kept_mib": [300], "freed_mib": [500, 20], "emptied": False},
        {"context_bytes": 134 * MIB, "kept_mib": [64], "freed_mib": [500], "emptied": True},
    ),
    hidden=lambda random: [_process(random, emptied) for emptied in (False, True, False, True)],
    measure=_measure_process,
    gpu=lambda context_bytes, **_: GPU(_gpu_with(context_bytes)),
    mistakes=of(
        _listed,
        (
            "You gave what torch.cuda.memory_reserved() returns. nvidia-smi also counts the "
            "process's CUDA context.",
            {"context_bytes": 0},
        ),
        (
            "You subtracted deleted tensors. PyTorch caches their memory until empty_cache(), so "
            "nvidia-smi still counts it.",
            {"freed_mib": []},
        ),
        (
            "You counted the freed tensors after empty_cache(), which returned their memory to "
            "the driver.",
            {"emptied": False},
        ),
        Mistake(
            "You subtracted the context after empty_cache(). The context stays until the process "
            "ends.",
            lambda context_bytes, emptied, **sizes: _listed(
                0 if emptied else context_bytes, emptied=emptied, **sizes
            ),
        ),
    ),
)


# processes_that_fit: how many can share a GPU


def _measure_fit(total_bytes: int, context_bytes: int, tensor_mib: int) -> int:
    """Start one process after the other, until one runs out of memory."""
    started, others_bytes = 0, 0
    while True:
        with GPU(_gpu_with(context_bytes)).attached():
            try:
                device().memory.used_by_others_bytes = others_bytes
                tensor = allocate(tensor_mib * MIB)
            except torch.cuda.OutOfMemoryError:
                return started
            others_bytes += _used_by_this_process()
            del tensor
        started += 1


def _fitting(total_bytes: int, context_bytes: int, tensor_mib: int) -> int:
    """Return the answer: for naming mistakes, not for grading."""
    return total_bytes // (context_bytes + tensor_mib * MIB)


def _sharing(gpu: str, tensor_mib: int) -> Config:
    return {
        "total_bytes": _total_bytes(gpu),
        "context_bytes": _context_bytes(gpu),
        "tensor_mib": tensor_mib,
    }


def _telling(random: Random, gpu: str) -> Config:
    """Draw a case in which contexts change the answer, however many of them are counted."""
    while True:
        case = _sharing(gpu, 2 * random.randrange(150, 2500))
        free_bytes = case["total_bytes"] - case["context_bytes"]
        wrong = {free_bytes // (case["tensor_mib"] * MIB), _fitting(**{**case, "context_bytes": 0})}
        if _fitting(**case) not in wrong:
            return case


FIT = Predict(
    name="processes_that_fit",
    points=3,
    minutes=10,
    visible=(_sharing("T4", 1000), _sharing("RTX-3090", 400), _sharing("V100-16GB", 7000)),
    hidden=lambda random: [_telling(random, gpu) for gpu in GPUS],
    measure=_measure_fit,
    mistakes=of(
        _fitting,
        (
            "You left out the CUDA contexts: each process needs one in addition to its tensors.",
            {"context_bytes": 0},
        ),
        Mistake(
            "You counted one context for all processes. Each process has its own.",
            lambda total_bytes, context_bytes, tensor_mib: _fitting(
                total_bytes - context_bytes, 0, tensor_mib
            ),
        ),
        Mistake(
            "You counted the process that failed to start. Only the ones before it fit.",
            lambda **case: _fitting(**case) + 1,
        ),
    ),
)


# largest_part: who has the memory


def _observe_gpu(gpu: str, others_mib: int, kept_mib: int, freed_mib: int) -> Observation:
    """Return a GPU on which others, this process's tensors and its cache have something."""
    device().memory.used_by_others_bytes = others_mib * MIB
    kept, freed = allocate(kept_mib * MIB), allocate(freed_mib * MIB)
    del freed
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    readings = {
        "total": total_bytes,
        "free": free_bytes,
        "this_process": _used_by_this_process(),
        "reserved": torch.cuda.memory_reserved(),
        "allocated": torch.cuda.memory_allocated(),
    }
    del kept
    parts = {
        "others": others_mib * MIB,
        "context": _context_bytes(gpu),
        "cache": freed_mib * MIB,
        "tensors": kept_mib * MIB,
    }
    return Observation({"readings": readings}, _largest(parts))


def _crowded(random: Random, largest: str) -> Config:
    """Return a case in which the part `largest` is the largest, and no two are equal."""
    gpu = random.choice(("V100-16GB", "RTX-3090"))
    context_mib = _context_bytes(gpu) // MIB
    names = ["others_mib", "kept_mib", "freed_mib"]
    if largest == "context":
        sizes = random.sample(range(10, context_mib // 2 - 10, 2), 3)
        return {"gpu": gpu, **dict(zip(names, sizes, strict=True))}
    sizes = sorted(random.sample(range(400, 4000, 2), 3))
    winner = {"others": "others_mib", "tensors": "kept_mib", "cache": "freed_mib"}[largest]
    rest = [name for name in names if name != winner]
    random.shuffle(rest)
    return {"gpu": gpu, winner: sizes[2], rest[0]: sizes[1], rest[1]: sizes[0]}


def _parts(readings: dict[str, int]) -> dict[str, int]:
    return {
        "others": readings["total"] - readings["free"] - readings["this_process"],
        "context": readings["this_process"] - readings["reserved"],
        "cache": readings["reserved"] - readings["allocated"],
        "tensors": readings["allocated"],
    }


def _largest(parts: dict[str, int]) -> str:
    return max(parts, key=lambda part: parts[part])


LARGEST = Diagnose(
    name="largest_part",
    points=4,
    minutes=20,
    visible=(
        {"gpu": "V100-16GB", "others_mib": 1000, "kept_mib": 800, "freed_mib": 3000},
        {"gpu": "RTX-3090", "others_mib": 64, "kept_mib": 100, "freed_mib": 20},
        {"gpu": "V100-16GB", "others_mib": 3000, "kept_mib": 1400, "freed_mib": 1800},
    ),
    hidden=lambda random: [
        _crowded(random, largest)
        for largest in ("others", "context", "cache", "tensors", "cache", "others")
    ],
    observe=_observe_gpu,
    gpu=lambda gpu, **_: GPU(gpu),
    mistakes=(
        Mistake(
            "You compared all reserved memory with the other parts. Split it first: some is "
            "allocated to tensors, the rest is cache.",
            lambda readings: _largest(
                {**_parts(readings), "tensors": 0, "cache": readings["reserved"]}
            ),
        ),
        Mistake(
            "You counted everything used but not reserved as the context. Other processes use "
            "this GPU too: look at the figure for this process.",
            lambda readings: _largest(
                {
                    **_parts(readings),
                    "others": 0,
                    "context": readings["total"] - readings["free"] - readings["reserved"],
                }
            ),
        ),
        Mistake(
            "You counted everything used but not reserved as other processes' memory. This "
            "process also has a context.",
            lambda readings: _largest(
                {
                    **_parts(readings),
                    "others": readings["total"] - readings["free"] - readings["reserved"],
                    "context": 0,
                }
            ),
        ),
    ),
)


# hand_over: a cache in the way of another process

ROWS = 1024
TABLE = "table"
"""Noted when it is made; a worker is noted by its bytes."""


def _hand_over(
    prepare: Callable[[], torch.Tensor], start_worker: Callable[[], None]
) -> torch.Tensor:
    table = prepare()
    sums = table.sum(dim=0)
    del table
    torch.cuda.empty_cache()
    start_worker()
    return sums


def _programs_of(
    run: Run, columns: int, worker_share: float
) -> tuple[Callable[[], torch.Tensor], Callable[[], None]]:
    """Return what makes the table, and what starts the worker, which is noted."""
    worker_bytes = int(worker_share * 4 * ROWS * columns)

    def prepare() -> torch.Tensor:
        run.noted.append(TABLE)
        return whole_numbers(columns, ROWS, columns)

    def start_worker() -> None:
        free_bytes, _ = torch.cuda.mem_get_info()
        if free_bytes < worker_bytes:
            raise NotFixed(
                f"The worker needs {format_bytes(worker_bytes)} and the driver has "
                f"{format_bytes(free_bytes)}. You hold {format_bytes(device().used_bytes)}: "
                f"{format_bytes(torch.cuda.memory_allocated())} in tensors, "
                f"{format_bytes(torch.cuda.memory_reserved())} reserved."
            )
        device().memory.used_by_others_bytes += worker_bytes
        run.noted.append(worker_bytes)

    return run.ours(prepare), run.ours(start_worker)


def _whose_program(run: Run) -> str:
    whose = "The worker has its memory, but your" if _workers_bytes(run) else "Your"
    return f"{whose} own program runs out of memory."


def _workers_bytes(run: Run) -> list[int]:
    return [noted for noted in run.noted if noted != TABLE]


def _sums(run: Run, sums: object) -> torch.Tensor:
    if (started := len(_workers_bytes(run))) != 1:
        raise NotFixed(f"start_worker() was called {started} times, not once.")
    if TABLE not in run.noted:
        raise NotFixed("The worker starts, but prepare() was not called: which table is summed?")
    return on_host(sums, "The worker starts, but you give no tensor on the GPU any more.")


def _same_sums(run: Run, expected: torch.Tensor) -> None:
    message = "The worker starts, but the result has changed."
    require_close(run.results, expected, message)


HAND_OVER = Fix(
    name="hand_over",
    points=4,
    minutes=20,
    visible=({"columns": 8192, "worker_share": 1.5},),
    hidden=lambda random: [
        {"columns": 512 * random.randrange(12, 20), "worker_share": worker_share}
        for worker_share in (1.25, 1.75)
    ],
    trial=Repair(
        gpu=GPU("T4", values=True),
        build=_programs_of,
        reference=_hand_over,
        # Room for the table and what summing it takes, or for the worker, but not for both.
        limit=lambda own: 2 * 4 * ROWS * own.case["columns"],
        by_others=True,
        ran_out=_whose_program,
        collect=_sums,
        compare=_same_sums,
        report=lambda run: f"the worker got {format_bytes(_workers_bytes(run)[0])}",
    ),
)

EXERCISE = Exercise(
    name="01_cuda_context",
    module=__name__,
    tasks=(PROCESS, FIT, LARGEST, HAND_OVER),
    core=("process_bytes", "largest_part"),
)
