"""Exercise 30: what keeps memory, told before it runs, from a curve, and by a test."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

from vramlab.garbage import no_garbage_collection
from vramlab.units import MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import of
from vramlab_classroom.judge.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    NotFixed,
    Observation,
    Predict,
)
from vramlab_course.tasks.batches import ROWS_STEP, batch_bytes, check_order, pairs
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.readings import growth_bytes
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.results import number, numbers, require_close

T4 = GPU("T4")

Event = Mapping[str, Any]
"""Of a trace: `action`, `address`, `bytes` and `line`."""

BLOCK_BYTES = 512
"""The smallest block: that of a number. All other sizes here are multiples of 2 MiB."""


# held_bytes: what an evaluation without no_grad() gathers

GATHERED = ("loss", "loss.detach()", "output", "output.detach()", "output.cpu()")


def _measure_held(rows: int, width: int, batches: int, gathers: str) -> int:
    model = torch.nn.Sequential(
        torch.nn.Linear(width, 2 * width), torch.nn.ReLU(), torch.nn.Linear(2 * width, width)
    ).to("cuda")
    with torch.no_grad():
        model(torch.zeros(rows, width, device="cuda"))  # cuBLAS has its workspace from here on

    def evaluate() -> list[torch.Tensor]:
        gathered = []
        for _ in range(batches):
            x = torch.zeros(rows, width, device="cuda")
            output = model(x)
            loss = (output - x).square().mean()
            whose, _, how = gathers.partition(".")
            kept = loss if whose == "loss" else output
            gathered.append(kept.detach() if how == "detach()" else kept.cpu() if how else kept)
        return gathered

    return growth_bytes(evaluate)


def _held(
    rows: int,
    width: int,
    batches: int,
    gathers: str,
    *,
    relu_outputs: int = 1,
    inputs: int = 1,
    block_bytes: int = BLOCK_BYTES,
    cpu_keeps_graph: bool = True,
    detached_frees: bool = False,
    detached_keeps_graph: bool = False,
    loss_keeps: int = 1,
    output_keeps_graph: bool = True,
    loss_keeps_graph: bool = True,
    cpu_leaves_output: bool = False,
) -> int:
    """Return the answer, or a mistaken one.

    Args:
        rows, width, batches, gathers: as asked.
        relu_outputs: of each batch, in its graph.
        inputs: of each batch, in its graph.
        block_bytes: of a number.
        cpu_keeps_graph: whether a copy on the host holds the graph.
        detached_frees: whether a detached output takes nothing.
        detached_keeps_graph: whether what is detached holds the graph.
        loss_keeps: tensors of the output's size that the loss keeps beside the model's.
        output_keeps_graph: whether an output holds the graph.
        loss_keeps_graph: whether a loss holds the graph.
        cpu_leaves_output: whether the output stays beside its copy on the host.
    """
    batch_bytes = 4 * rows * width
    graph_bytes = inputs * batch_bytes + relu_outputs * 2 * batch_bytes
    loss_bytes = loss_keeps_graph * (graph_bytes + loss_keeps * batch_bytes)
    held_still = graph_bytes if detached_keeps_graph else 0
    each_bytes = {
        "loss": loss_bytes + block_bytes,
        "loss.detach()": block_bytes + (loss_bytes if detached_keeps_graph else 0),
        "output": output_keeps_graph * graph_bytes + batch_bytes,
        "output.detach()": held_still + (0 if detached_frees else batch_bytes),
        "output.cpu()": (graph_bytes if cpu_keeps_graph else 0) + cpu_leaves_output * batch_bytes,
    }
    return batches * each_bytes[gathers]


def _evaluation(random: Random, gathers: str) -> Config:
    return {
        "rows": 8192 * random.randrange(1, 4),
        "width": 64 * random.randrange(1, 4),
        "batches": random.randrange(2, 7),
        "gathers": gathers,
    }


HELD = Predict(
    name="held_bytes",
    points=4,
    minutes=20,
    visible=tuple(
        {"rows": 8192, "width": 64, "batches": 3, "gathers": gathers} for gathers in GATHERED
    ),
    hidden=lambda random: [_evaluation(random, gathers) for gathers in (*GATHERED, *GATHERED)],
    measure=_measure_held,
    gpu=T4,
    mistakes=of(
        _held,
        (
            "You took a copy on the host as free of its graph. cpu() is an op like any other: the "
            "backward pass could go through it.",
            {"cpu_keeps_graph": False},
        ),
        (
            "You took detach() as freeing the memory. It drops the graph; the numbers stay where "
            "they were.",
            {"detached_frees": True},
        ),
        (
            "You counted ReLU's output twice. ReLU saves it, and the next layer saves the same "
            "tensor.",
            {"relu_outputs": 2},
        ),
        (
            "You left out the batches. The first layer saves its input.",
            {"inputs": 0},
        ),
        (
            "You took detach() as leaving the graph in place. Which variable still references the "
            "tensor that it was called on?",
            {"detached_keeps_graph": True},
        ),
        (
            "You let a loss keep only what the model saves. What does the square save for its "
            "gradient?",
            {"loss_keeps": 0},
        ),
        (
            "You let a loss keep the output beside the difference. A subtraction saves neither of "
            "its inputs; which variable references the output?",
            {"loss_keeps": 2},
        ),
        (
            "You counted only an output's numbers. Without no_grad(), what else does it reference?",
            {"output_keeps_graph": False},
        ),
        (
            "You counted only a loss's number. Without no_grad(), what else does it reference?",
            {"loss_keeps_graph": False},
        ),
        (
            "You kept the output on the GPU beside its copy on the host. Which variable "
            "references it after the next batch?",
            {"cpu_leaves_output": True},
        ),
        (
            "You counted one batch. What has been collected when the loop ends?",
            {"batches": 1},
        ),
        ("You counted a number as four bytes. What is the smallest block?", {"block_bytes": 4}),
    ),
)


# which_leak: told from what is allocated after every step

KINDS = {"none": "none", "losses": "list", "hooks": "list", "masks": "cache", "errors": "cycle"}
"""What the answer is, by what has been added to the training."""
STEPS = 24


def _observe_training(added: str, rows: int, collect_every: int) -> Observation:
    """Train with an added line, and read what is allocated before and after each step.

    Args:
        added: one of `KINDS`.
        rows: of a batch.
        collect_every: steps after which Python looks for garbage.
    """
    from vramlab_course.lessons.l30_hunting_a_leak.leaks import LeakyTraining

    with no_garbage_collection():
        training = LeakyTraining(added, rows, 512)
        allocated = [torch.cuda.memory_allocated()]
        for step in range(1, STEPS + 1):
            training.step()
            if step % collect_every == 0:
                gc.collect(0)
            allocated.append(torch.cuda.memory_allocated())
        del training
        gc.collect(0)
    return Observation({"allocated": allocated}, KINDS[added])


def _which(
    allocated: Sequence[int],
    *,
    first: int = 1,
    bends: bool = True,
    falls: bool = True,
    last_only: bool = False,
    falls_at_end: bool = False,
) -> str:
    """Return the answer, or a mistaken one.

    Args:
        allocated: as asked.
        first: reading that is looked at first; 1 is after the first step.
        bends: whether growth that ends is distinguished from growth that goes on.
        falls: whether it is noticed that memory comes back.
        last_only: only the last step is looked at.
        falls_at_end: memory comes back if less is there in the end than was once.
    """
    seen = allocated[-2:] if last_only else allocated[first:]
    if falls_at_end:
        falls = seen[-1] < max(seen)
    if falls and any(after < before for before, after in pairwise(seen)):
        return "cycle"
    if seen[-1] == seen[0]:
        return "none"
    return "cache" if bends and seen[-1] == seen[-2] else "list"


def _training(random: Random, added: str) -> Config:
    return {
        "added": added,
        "rows": 1024 * random.randrange(2, 9),
        "collect_every": random.randrange(3, 8),
    }


WHICH = Diagnose(
    name="which_leak",
    points=3,
    minutes=20,
    visible=tuple(
        {"added": added, "rows": 4096, "collect_every": 5}
        for added in ("hooks", "errors", "masks", "none")
    ),
    hidden=lambda random: [
        *(_training(random, added) for added in (*KINDS, *KINDS)),
        # The last step before Python looks for garbage again: as much is there as ever.
        {"added": "errors", "rows": 1024 * random.randrange(5, 9), "collect_every": 5},
    ],
    observe=_observe_training,
    gpu=T4,
    mistakes=of(
        _which,
        (
            "You counted what the first step allocates for good: workspaces, and with other "
            "optimizers their states. Start comparing after the first step.",
            {"first": 0},
        ),
        (
            "You did not check whether the growth ends. What is full after a while?",
            {"bends": False},
        ),
        (
            "You did not look for memory that is freed later. What frees it, if no line of the "
            "program does?",
            {"falls": False},
        ),
        (
            "You looked only at the last step. By chance, it can be one in which nothing grows or "
            "nothing is freed: what about all the steps before?",
            {"last_only": True},
        ),
        (
            "You checked whether the curve ends below its highest point. Freed memory can be "
            "allocated again at the end: look at each step.",
            {"falls_at_end": True},
        ),
    ),
)


# train: a training loop with two leaks

WIDTH = 64
FACTOR = 4

Load = Callable[[int], tuple["torch.Tensor", "torch.Tensor"]]


def _model_and_data(run: Run, rows: int, batches: int) -> tuple[Any, ...]:
    torch.manual_seed(7)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, FACTOR * WIDTH),
        torch.nn.GELU(),
        torch.nn.Linear(FACTOR * WIDTH, WIDTH),
    ).to("cuda")

    return model, run.noting(pairs(rows, WIDTH)), batches


def _train(
    model: torch.nn.Sequential, load: Load, batches: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    largest: list[torch.Tensor] = []

    def note(module: object, inputs: object, output: torch.Tensor) -> None:
        largest.append(output.detach().max())

    handle = model[0].register_forward_hook(note)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checked = torch.zeros((), device="cuda")
    for index in range(batches):
        inputs, targets = load(index)
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            checked += (model(inputs) - targets).square().mean()
    handle.remove()
    return checked / batches, largest


def _batch_bytes(run: Run) -> int:
    return batch_bytes(run.case["rows"], WIDTH)


def _where_it_ended(run: Run) -> str:
    loaded = len(run.noted)
    held_bytes = torch.cuda.memory_allocated()
    sizes = (
        f"{run.ran_out} in batch {loaded} of {run.case['batches']}, each of "
        f"{format_bytes(_batch_bytes(run))}, with {format_bytes(held_bytes)} allocated. "
    )
    if loaded < 2:
        return sizes + "What does a step need besides one batch and its activations?"
    return sizes + (
        "Something of every batch so far is still allocated, because of two lines: one keeps "
        "graphs that no backward pass uses, one keeps a whole tensor although it needs a single "
        "number."
    )


def _collected(run: Run, returned: Any) -> tuple[torch.Tensor, torch.Tensor]:
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise NotFixed("It has to return two results: the mean check, and the largest outputs.")
    mean = number(returned[0], "The first result has to be a number: the mean check.")
    count = 2 * run.case["batches"]
    largest = numbers(returned[1], count, "the largest output of each pass of the first layer")
    kinds = [torch.nn.Sequential, torch.nn.Linear, torch.nn.GELU, torch.nn.Linear]
    if [type(module) for module in run.inputs[0].modules()] != kinds:
        raise NotFixed("It fits, but the model has other layers when the function returns.")
    if place := _hooked(run.inputs[0]):
        raise NotFixed(
            f"It fits, but your hook on {place} is still registered when the function returns."
        )
    return torch.tensor(mean), torch.tensor(largest)


def _hooked(model: torch.nn.Module) -> str:
    """Give a part of a model that has a hook, or whose forward() was replaced; or ""."""
    for name, module in model.named_modules():
        attributes = vars(module)
        if "forward" in attributes or any(
            value for key, value in attributes.items() if key.endswith(("_hooks", "_pre_hooks"))
        ):
            return f"model[{name}]" if name else "the model"
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            return f"the parameter {name}"
    return ""


def _same_training(run: Run, expected: tuple[torch.Tensor, torch.Tensor]) -> None:
    check_order(run.noted, run.case["batches"])
    mean, largest = run.results
    require_close(largest, expected[1], "It fits, but the largest outputs are wrong.")
    require_close(mean, expected[0], "It fits, but the mean check is wrong.")


TRAIN = Fix(
    name="train",
    points=4,
    minutes=25,
    visible=({"rows": ROWS_STEP, "batches": 8},),
    hidden=lambda random: [
        {"rows": ROWS_STEP * random.randrange(1, 3), "batches": random.randrange(6, 10)}
        for _ in range(2)
    ],
    trial=Repair(
        gpu=T4.but(values=True),
        build=_model_and_data,
        reference=_train,
        limit=lambda own: own.reserved_bytes[0] + _batch_bytes(own),
        allocated_room_bytes=6 * MIB,
        ran_out=_where_it_ended,
        collect=_collected,
        compare=_same_training,
    ),
)


# leaks: the test that would have caught it

MOST_LENGTHS = 8
"""Masks that a cache comes to have."""


def _step(run: Run, added: str, rows: int) -> tuple[Callable[[], None]]:
    from vramlab_course.lessons.l30_hunting_a_leak.leaks import LeakyTraining

    return (run.ours(LeakyTraining(added, rows, 512).step),)


def _leaks(step: Callable[[], None]) -> bool:
    for _ in range(MOST_LENGTHS + 1):
        step()
    gc.collect()
    before_bytes = torch.cuda.memory_allocated()
    for _ in range(2):
        step()
    gc.collect()
    return torch.cuda.memory_allocated() > before_bytes


_ABOUT = {
    "none": "It calls a healthy step a leak. What does the first step allocate for good?",
    "losses": "It misses a step that keeps a single number. Is there a tolerance in it?",
    "checks": "It misses a step that keeps a graph.",
    "hooks": "It misses a hook that stays registered. When does a hook start to keep memory?",
    "masks": f"It calls a cache of {MOST_LENGTHS} masks a leak. When has it seen every length?",
    "errors": (
        "It calls a leak what Python's garbage collector would free. Run the collector first."
    ),
}


def _is_bool(run: Run, returned: Any) -> bool:
    if type(returned) is not bool:
        raise NotFixed(f"It has to return True or False; it returns a {type(returned).__name__}.")
    return returned


def _same_verdict(run: Run, expected: bool) -> None:
    if run.results is not expected:
        raise NotFixed(_ABOUT[run.case["added"]], str(run.results), str(expected))


TEST = Fix(
    name="leaks",
    points=4,
    minutes=25,
    by_cases=True,
    visible=tuple(
        {"added": added, "rows": 4096} for added in ("none", "checks", "masks", "errors")
    ),
    hidden=lambda random: [
        # A test that tolerates a single number misses the point: that counts twice.
        {"added": added, "rows": 1024 * random.randrange(2, 9)}
        for added in (*_ABOUT, "losses")
    ],
    trial=Repair(
        gpu=T4,
        build=_step,
        reference=_leaks,
        collect=_is_bool,
        compare=_same_verdict,
        report=lambda run: str(run.results),
    ),
)


# growing_line: told from a memory snapshot of a program that cannot be read

KEEPS = ("outputs", "batches", "losses", "copies")


def _observe_snapshot(
    keeps: str, rows: int, width: int, first: int, lines_above: int
) -> Observation:
    """Train with a line that keeps something, and read the memory snapshot.

    Args:
        keeps: one of `KEEPS`.
        rows: of a batch.
        width: of the model.
        first: step at which the recording begins.
        lines_above: lines of the program before the training.
    """
    from vramlab_course.lessons.l30_hunting_a_leak.unknown_program import snapshot_of

    trace, line = snapshot_of(keeps, rows, width, first, lines_above)
    return Observation({"trace": trace}, line)


def _growing(
    trace: Sequence[Event], *, frees: bool = True, late_only: bool = True, by_bytes: bool = False
) -> str:
    """Return the answer, or a mistaken one.

    Args:
        trace: as asked.
        frees: whether blocks that were freed are left out.
        late_only: whether only the second half of the trace is looked at.
        by_bytes: whether bytes are added up, instead of counting blocks.
    """
    there: dict[int, Event] = {}
    for index, event in enumerate(trace):
        if event["action"] == "free":
            if frees:
                there.pop(event["address"], None)
        elif event["line"] and (index >= len(trace) // 2 or not late_only):
            there[event["address"] if frees else -index] = event
    by_line: Counter[str] = Counter()
    for event in there.values():
        by_line[event["line"]] += event["bytes"] if by_bytes else 1
    return by_line.most_common(1)[0][0]


def _unknown_program(random: Random, keeps: str, first: int) -> Config:
    return {
        "keeps": keeps,
        "rows": 1024 * random.randrange(1, 5),
        "width": 64 * random.randrange(1, 3),
        "first": first,
        "lines_above": random.randrange(3, 60),
    }


GROWING = Diagnose(
    name="growing_line",
    points=3,
    minutes=20,
    rule=lambda keeps, **_: keeps,
    visible=tuple(
        {"keeps": keeps, "rows": 1024, "width": 64, "first": first, "lines_above": 5}
        for keeps, first in zip(KEEPS, (0, 0, 0, 3), strict=True)
    ),
    hidden=lambda random: [
        _unknown_program(random, keeps, first) for keeps in KEEPS for first in (0, 3)
    ],
    observe=_observe_snapshot,
    gpu=T4,
    mistakes=of(
        _growing,
        (
            "You counted all allocations, freed or not. Most blocks live for one step.",
            {"frees": False},
        ),
        (
            "You counted everything that is left at the end. Some of it was allocated in the "
            "first steps and stays for good: optimizer states, caches. Which line adds a block "
            "even late in the trace?",
            {"late_only": False},
        ),
        (
            "You added up the bytes that are left at the end. Something large that is kept once "
            "is no leak. Which line adds a block even late in the trace?",
            {"late_only": False, "by_bytes": True},
        ),
    ),
)


EXERCISE = Exercise(
    name="30_hunting_a_leak",
    module=__name__,
    tasks=(HELD, WHICH, TRAIN, TEST, GROWING),
    core=("which_leak", "train"),
)
