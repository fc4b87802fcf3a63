"""Exercise 13: the peak of a batch in pieces, what loops do to gradients, and a loop to fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from vramlab.units import MIB
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, instead, of
from vramlab_classroom.judge.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    NotFixed,
    Observation,
    Predict,
)
from vramlab_course.tasks.batches import check_order
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.snapshots import Trace, most_at_once, trace_of
from vramlab_course.tasks.weight_changes import tanh_chain, times_as_far, weight_changes
from vramlab_course.tasks.workspaces import take_workspaces

T4 = GPU("T4")


# peak_bytes: one update of a chain of Linear layers, in micro-batches


def _measure_peak(rows: int, steps: int, width: int, layers: int) -> int:
    take_workspaces()
    workspaces_bytes = torch.cuda.memory_allocated()
    linears = [torch.nn.Linear(width, width, bias=False) for _ in range(layers)]
    model = torch.nn.Sequential(*linears).to("cuda")
    for _ in range(steps):
        _add_gradients(model, torch.zeros(rows // steps, width))
    return torch.cuda.max_memory_allocated() - workspaces_bytes


def _add_gradients(model: torch.nn.Module, rows: torch.Tensor) -> None:
    x = rows.to("cuda")
    y = model(x)
    loss = y.sum()
    loss.backward()


def _peak(
    rows: int,
    steps: int,
    width: int,
    layers: int,
    *,
    gradients: bool | None = None,
    whole_batch: bool = False,
    made: int = 1,
) -> int:
    """Return the peak where an activation is at least as large as a weight; and the mistaken ones.

    Args:
        rows: as in the task; and so on.
        gradients: those of micro-batches before are there; None: if there are any.
        whole_batch: activations are those of all micro-batches.
        made: gradients that are there before they are added.
    """
    weight_bytes = 4 * width * width
    activation_bytes = 4 * (rows if whole_batch else rows // steps) * width
    weights = layers * (2 if (steps > 1 if gradients is None else gradients) else 1) + made
    return weights * weight_bytes + (layers + 3) * activation_bytes + 1024


def _hidden_peak(random: Random) -> list[Config]:
    cases: list[Config] = []
    for steps in (1, 2, 4, 8, random.randrange(3, 7)):
        width = 512 * random.randrange(1, 3)
        micro_batch = 1024 * random.randrange(2, 5)
        cases.append(
            {
                "rows": micro_batch * steps,
                "steps": steps,
                "width": width,
                "layers": random.randrange(2, 7),
            }
        )
    return cases


PEAK = Predict(
    name="peak_bytes",
    points=3,
    minutes=20,
    visible=(
        {"rows": 8192, "steps": 1, "width": 1024, "layers": 4},
        {"rows": 8192, "steps": 2, "width": 1024, "layers": 4},
        {"rows": 8192, "steps": 4, "width": 1024, "layers": 4},
        {"rows": 4096, "steps": 2, "width": 512, "layers": 2},
    ),
    hidden=_hidden_peak,
    measure=_measure_peak,
    gpu=T4,
    mistakes=of(
        _peak,
        (
            "You followed document 002: no extra memory. The gradients of the earlier "
            "micro-batches are allocated at the peak.",
            {"gradients": False},
        ),
        (
            "You counted all gradients for a batch in one piece, too. There they are None until "
            "the backward pass computes them, and at the peak only one has been allocated.",
            {"gradients": True},
        ),
        (
            "You counted the activations of the whole batch. Those of a micro-batch are freed "
            "before the next one starts.",
            {"whole_batch": True},
        ),
        (
            "You left out the new gradient. Before it can be added to the accumulated one, it "
            "needs its own memory.",
            {"made": 0},
        ),
    ),
)


# first_step_percent: what a loop makes of the gradient

LOOPS = ("divided", "not divided", "added to itself", "graphs retained")


def _batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the same small batch `count` times, so that every batch has the same gradient."""
    from vramlab_course.lessons.l13_gradient_accumulation.document_loops import small_data

    return list(small_data(1)) * count


class _Gradients:
    """Stands for an optimizer: changes nothing, and notes each gradient in percent of the right."""

    def __init__(self, model: torch.nn.Module, right: torch.Tensor) -> None:
        self.model = model
        self.right = right
        self.percents: list[int] = []

    def step(self) -> None:
        from vramlab_course.lessons.l13_gradient_accumulation.document_loops import gradient_of

        applied = gradient_of(self.model)
        times = float(applied @ self.right / (self.right @ self.right))
        self.percents.append(round(100 * times))


def _start() -> tuple[torch.nn.Module, _Gradients]:
    """Return a model, and an optimizer that knows the gradient of the one batch there is."""
    from vramlab_course.lessons.l13_gradient_accumulation.document_loops import (
        gradient_of,
        small_model,
    )

    model = small_model()
    [(inputs, targets)] = _batches(1)
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    right = gradient_of(model)
    model.zero_grad()
    return model, _Gradients(model, right)


def _train_for_two_epochs(
    loop: str, steps: int, batches: int, *, incomplete: bool = True
) -> tuple[list[int], list[int]]:
    """Run a loop of document 001's form.

    Args:
        loop: one of `ANSWERS`.
        steps: micro-batches in a window.
        batches: in an epoch.
        incomplete: a window that the epoch cuts short ends with a step, too.

    Returns:
        The gradient of each step, in percent; and the bytes allocated after each batch of the first
        window.
    """
    allocated: list[int] = []
    model, optimizer = _start()
    for _ in range(2):
        total: torch.Tensor | int = 0
        for i, (inputs, targets) in enumerate(_batches(batches)):
            in_window = min(steps, batches - i // steps * steps)
            # Who knows nothing of an incomplete window divides by too much there, or never steps.
            divide_by = in_window if incomplete and loop != "last window" else steps
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            if loop == "added to itself":
                loss = loss + loss / divide_by
            elif loop != "not divided":
                loss = loss / divide_by
            if loop in ("graphs retained", "one backward"):
                total = total + loss
                loss = total
            ends = (i + 1) % steps == 0 or (incomplete and i + 1 == batches)
            if ends or loop != "one backward":
                loss.backward(retain_graph=loop == "graphs retained")
            if len(allocated) < steps:
                allocated.append(torch.cuda.memory_allocated())
            if ends:
                optimizer.step()
                model.zero_grad()
                total = 0
    return optimizer.percents, allocated


def _measure_percent(loop: str, steps: int, batches: int) -> int:
    """Measure the first step of the second epoch."""
    percents, _ = _train_for_two_epochs(loop, steps, batches, incomplete=False)
    return percents[batches // steps]


def _percent(
    loop: str,
    steps: int,
    batches: int,
    *,
    left_over: bool = True,
    taken_for: Mapping[str, str] | None = None,
) -> int:
    """Return the answer or a mistaken one: some loops are taken for others."""
    loop = (taken_for or {}).get(loop, loop)
    in_window = steps + (batches % steps if left_over else 0)
    if loop == "graphs retained":
        return 100 * sum(range(1, steps + 1)) // steps
    times = {"divided": 1, "not divided": steps, "added to itself": steps + 1}[loop]
    return 100 * times * in_window // steps


def _hidden_percent(random: Random) -> list[Config]:
    cases: list[Config] = []
    for loop in LOOPS:
        steps = random.choice((2, 4, 5, 10))
        rest = 0 if loop == "graphs retained" else random.randrange(1, steps)
        cases.append({"loop": loop, "steps": steps, "batches": 2 * steps + rest})
    cases.append({"loop": "added to itself", "steps": 8, "batches": 8})
    return cases


PERCENT = Predict(
    name="first_step_percent",
    points=3,
    minutes=20,
    visible=(
        {"loop": "divided", "steps": 4, "batches": 8},
        {"loop": "divided", "steps": 4, "batches": 7},
        {"loop": "not divided", "steps": 4, "batches": 8},
        {"loop": "added to itself", "steps": 4, "batches": 8},
        {"loop": "added to itself", "steps": 2, "batches": 5},
        {"loop": "graphs retained", "steps": 4, "batches": 8},
    ),
    hidden=_hidden_percent,
    measure=_measure_percent,
    gpu=T4.but(values=True),
    mistakes=of(
        _percent,
        (
            "You left out what the first epoch leaves behind. Batches after its last step have "
            "gradients, too, and nothing sets them to zero.",
            {"left_over": False},
        ),
        (
            "You read `loss += loss / steps` as a division. It adds the loss to itself: the "
            "factor is 1 + 1 / steps for every batch.",
            {"taken_for": {"added to itself": "divided"}},
        ),
        Mistake(
            "You applied 1 + 1 / steps once. It multiplies every batch, where 1 / steps would be "
            "right.",
            lambda loop, steps, batches: (
                100 * (steps + 1) * (steps + batches % steps) // steps**2
                if loop == "added to itself"
                else _percent(loop, steps, batches)
            ),
        ),
        Mistake(
            "With retained graphs, every backward() runs through all batches of the window so "
            "far: the first batch counts `steps` times, the last one once.",
            lambda loop, steps, batches: (
                100 if loop == "graphs retained" else _percent(loop, steps, batches)
            ),
        ),
    ),
)


# what_is_wrong: told from gradients and memory

ANSWERS = (
    "right",
    "not divided",
    "added to itself",
    "graphs retained",
    "one backward",
    "left over",
    "last window",
)


def _observe_loop(loop: str, steps: int, batches: int) -> Observation:
    """Run a loop for two epochs; read the gradient of each step, and memory in the first window.

    Args:
        loop: one of `ANSWERS`.
        steps: micro-batches in a window.
        batches: in an epoch; more than two windows, and no multiple of `steps`.
    """
    percents, allocated = _train_for_two_epochs(
        loop, steps, batches, incomplete=loop != "left over"
    )
    return Observation({"steps": steps, "percents": percents, "allocated": allocated}, loop)


def _named(steps: int, percents: Sequence[int], allocated: Sequence[int]) -> str:
    """Return the right answer, by reasoning."""
    grows = len(set(allocated[:-1])) > 1
    first = percents[0]
    if grows:
        return "one backward" if first == 100 else "graphs retained"
    if first == 100 * steps:
        return "not divided"
    if first == 100 * (steps + 1):
        return "added to itself"
    if min(percents) < 100:
        return "last window"
    return "left over" if max(percents) > 100 else "right"


WRONG = Diagnose(
    name="what_is_wrong",
    points=4,
    minutes=20,
    visible=(
        {"loop": "right", "steps": 4, "batches": 10},
        {"loop": "added to itself", "steps": 4, "batches": 10},
        {"loop": "graphs retained", "steps": 4, "batches": 10},
        {"loop": "left over", "steps": 4, "batches": 10},
        {"loop": "one backward", "steps": 4, "batches": 10},
    ),
    hidden=lambda random: [
        {"loop": loop, "steps": steps, "batches": 2 * steps + random.randrange(1, steps)}
        for loop in ANSWERS
        for steps in (random.choice((4, 5, 10)),)
    ],
    observe=_observe_loop,
    gpu=T4.but(values=True),
    mistakes=(
        Mistake(
            "You looked only at the gradients. Look at the memory within the first window as well.",
            instead(_named, {"one backward": "right"}),
        ),
        Mistake(
            "You looked only at the first step. The last window of an epoch, and the first of the "
            "next, show what happens to an incomplete window.",
            lambda steps, percents, allocated: _named(steps, percents[:1], allocated),
        ),
        Mistake(
            "You took `loss += loss / steps` for a missing division. Both gradients are too "
            "large, but one by `steps`, the other by `steps` + 1.",
            instead(_named, {"added to itself": "not divided"}),
        ),
    ),
)


# train: document 001's loop, fixed

WIDTH = 64
LAYERS = 4
LEARNING_RATE = 0.5
ROOM_BYTES = 4 * MIB
"""Less than the activations of one more micro-batch: eight of 2048 x 64 x 8 B."""

SAME = 1e-9
"""Of the largest change of a weight. In float64, sums in another order differ by about 1e-14."""


def _mend(
    model: torch.nn.Module, load: Callable[[int], Any], rows: Sequence[int], steps: int
) -> None:
    """Solve the task."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for window in _windows(len(rows), steps):
        total = sum(rows[i] for i in window)
        for i in window:
            inputs, targets = load(i)
            loss = torch.nn.functional.mse_loss(model(inputs), targets) * rows[i] / total
            loss.backward()
            del inputs, targets, loss
        optimizer.step()
        optimizer.zero_grad()


def _whole(
    model: torch.nn.Module, load: Callable[[int], Any], rows: Sequence[int], steps: int
) -> None:
    """Solve the task with every window as one batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for window in _windows(len(rows), steps):
        inputs, targets = (torch.cat(parts) for parts in zip(*map(load, window), strict=True))
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()


def _windows(batches: int, steps: int) -> Iterator[range]:
    return (range(start, min(start + steps, batches)) for start in range(0, batches, steps))


def _model_and_data(run: Run, rows: Sequence[int], steps: int) -> tuple[Any, ...]:
    torch.manual_seed(0)
    model = tanh_chain(WIDTH, LAYERS).double()

    def load(index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        inputs = torch.randn(rows[index], WIDTH, generator=generator, dtype=torch.float64)
        targets = torch.rand(rows[index], WIDTH, generator=generator, dtype=torch.float64)
        return inputs.to("cuda"), targets.to("cuda")

    return model, run.noting(load), list(rows), steps


def _where_it_ended(run: Run) -> str:
    return (
        f"{run.ran_out} at batch {len(run.noted)} of {len(run.case['rows'])}. Which batches' "
        "activations are still allocated, and what references them?"
    )


def _same_changes(run: Run, expected: torch.Tensor) -> None:
    check_order(run.noted, len(run.case["rows"]))
    far = float((run.results - expected).abs().max() / expected.abs().max())
    if far > SAME:
        times = times_as_far(run.results, expected)
        raise NotFixed(
            f"It fits, but the weights have moved {times:.3f} times as far in the right direction "
            "as with whole windows. Which rows get too much or too little weight, or none?"
        )


def _hidden_train(random: Random) -> list[Config]:
    steps = random.randrange(3, 6)
    left = random.randrange(1, steps)
    return [
        {"rows": [2048] * (2 * steps), "steps": steps},
        {"rows": [2048] * (steps + left), "steps": steps},
        {"rows": [2048] * (steps + left) + [random.randrange(500, 1500)], "steps": steps},
    ]


TRAIN = Fix(
    name="train",
    points=4,
    minutes=25,
    visible=(
        {"rows": [2048] * 8, "steps": 4},
        {"rows": [2048] * 6, "steps": 4},
        {"rows": [2048] * 5 + [512], "steps": 4},
    ),
    hidden=_hidden_train,
    trial=Repair(
        gpu=T4.but(values=True),
        build=_model_and_data,
        call=lambda run: weight_changes(run.inputs[0], lambda: run.program(*run.inputs)),
        reference=_whole,
        fits=_mend,
        limit=room(ROOM_BYTES),
        ran_out=_where_it_ended,
        compare=_same_changes,
    ),
)

# how_trained: an unknown training step, from its snapshot


def _observe_step(how: str, layers: int, pieces: int, rows: int, width: int) -> Observation:
    """Take a step on a whole batch or in pieces, and give what its snapshot says."""
    model = torch.nn.Sequential(
        *(torch.nn.Linear(width, width, bias=False) for _ in range(layers))
    ).to("cuda")
    take_workspaces()

    def step() -> None:
        sizes = [rows] if how == "whole" else [rows // pieces] * pieces
        total = None
        for size in sizes:
            loss = model(torch.zeros(size, width, device="cuda")).square().mean() / len(sizes)
            if how == "collected":
                total = loss if total is None else total + loss
            else:
                loss.backward()
        if total is not None:
            total.backward()

    evidence = {
        "trace": trace_of(step),
        "layers": layers,
        "pieces": pieces,
        "output_bytes": 4 * rows * width,
    }
    return Observation(evidence, how)


def _how_trained(
    trace: Trace, layers: int, pieces: int, output_bytes: int, *, at_once: bool = True
) -> str:
    """Return the answer or the mistaken one: for naming mistakes, not for grading.

    Args:
        trace: what the snapshot says.
        layers: of the model.
        pieces: that the batch would be cut into.
        output_bytes: of a layer, for the whole batch.
        at_once: whether only blocks that are there together count.
    """
    if most_at_once(trace, output_bytes):
        return "whole"
    piece_bytes = output_bytes // pieces
    came = sum(e["action"] == "alloc" and e["size"] == piece_bytes for e in trace)
    count = most_at_once(trace, piece_bytes) if at_once else came
    return "collected" if count > 2 * layers else "in pieces"


def _unknown_steps(random: Random) -> list[Config]:
    return [
        {
            "how": how,
            "layers": random.randrange(5, 9),
            "pieces": random.choice((4, 8)),
            "rows": 64 * random.randrange(24, 40),
            "width": 128 * random.randrange(5, 8),
        }
        for how in ("whole", "in pieces", "collected", "in pieces")
    ]


HOW_TRAINED = Diagnose(
    name="how_trained",
    points=3,
    minutes=20,
    visible=tuple(
        {"how": how, "layers": 6, "pieces": 4, "rows": 2048, "width": 640}
        for how in ("in pieces", "collected", "whole")
    ),
    hidden=_unknown_steps,
    observe=_observe_step,
    gpu=T4,
    mistakes=of(
        _how_trained,
        (
            'You answered "collected" for a step taken in pieces. Do you count the blocks that '
            "are allocated at the same time, or all allocations? And how many blocks of its size "
            "does a piece need in its own backward pass: one per layer, or more?",
            {"at_once": False},
        ),
        Mistake(
            "You looked only for small blocks. They do not show that graphs are freed: a sum of "
            "losses references the graphs of all pieces.",
            lambda trace, layers, pieces, output_bytes: (
                "whole" if most_at_once(trace, output_bytes) else "in pieces"
            ),
        ),
    ),
)


EXERCISE = Exercise(
    name="13_gradient_accumulation",
    module=__name__,
    tasks=(PEAK, PERCENT, WRONG, TRAIN, HOW_TRAINED),
    core=("peak_bytes", "what_is_wrong"),
)
