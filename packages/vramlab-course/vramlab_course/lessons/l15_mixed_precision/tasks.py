"""Exercise 15: what autocast keeps, where it pays, which recipe ran, and a training to repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

from vramlab.units import MIB
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
from vramlab_course.tasks.batches import check_order
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.operations import PRODUCTS, base_name
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.weight_changes import tanh_chain, times_as_far, weight_changes
from vramlab_course.tasks.workspaces import take_workspaces

T4 = GPU("T4")

Widths = Sequence[int]


def _chain(widths: Widths, dtype: torch.dtype | None = None) -> torch.nn.Sequential:
    """Linear layers with bias, on the GPU."""
    linears = [torch.nn.Linear(*pair, dtype=dtype) for pair in pairwise(widths)]
    return torch.nn.Sequential(*linears).to("cuda")


def _requested() -> int:
    """Bytes that tensors asked for, before the allocator rounds them."""
    return int(torch.cuda.memory_stats()["requested_bytes.all.current"])


# added_bytes: a forward pass, with autocast and without


def _measure_added(rows: int, widths: Widths, autocast: bool, inside: bool = True) -> int:
    """Growth of what is requested over a forward pass, within the region or after it."""
    take_workspaces()
    model = _chain(widths)
    x = torch.zeros(rows, widths[0], device="cuda")
    before_bytes = _requested()
    with torch.autocast("cuda", dtype=torch.float16, enabled=autocast):
        y = model(x)
        added_bytes = _requested() - before_bytes
    if not inside:
        added_bytes = _requested() - before_bytes
    del y
    return added_bytes


def _added(
    rows: int,
    widths: Widths,
    autocast: bool,
    inside: bool = True,
    *,
    casts_input: bool = True,
    casts_parameters: bool = True,
    after: slice = slice(1, None),
) -> int:
    """Return the answer or a mistaken one: `after` the region, these layers' casts are held."""
    outputs = rows * sum(widths[1:])
    if not autocast:
        return 4 * outputs
    added = 2 * outputs + (2 * rows * widths[0] if casts_input else 0)
    pairs = list(pairwise(widths))
    if casts_parameters:
        if inside:
            added += 2 * sum(inputs * width + width for inputs, width in pairs)
        else:
            added += 2 * sum(inputs * width for inputs, width in pairs[after])
    return added


def _widths(random: Random, layers: int) -> list[int]:
    return [64 * random.randrange(2, 24) for _ in range(layers + 1)]


ADDED = Predict(
    name="added_bytes",
    points=4,
    minutes=25,
    visible=(
        {"rows": 1024, "widths": [1024, 1024, 1024], "autocast": False, "inside": True},
        {"rows": 1024, "widths": [1024, 1024, 1024], "autocast": True, "inside": True},
        {"rows": 1024, "widths": [1024, 1024, 1024], "autocast": True, "inside": False},
        {"rows": 300, "widths": [512, 2048, 512, 64], "autocast": True, "inside": True},
        {"rows": 300, "widths": [512, 2048, 512, 64], "autocast": True, "inside": False},
    ),
    hidden=lambda random: [
        {
            "rows": random.randrange(50, 3000),
            "widths": _widths(random, layers),
            "autocast": autocast,
            "inside": inside,
        }
        for layers in (1, 2, 5)
        for autocast, inside in ((True, True), (True, False), (False, True))
    ],
    measure=_measure_added,
    gpu=T4,
    mistakes=of(
        _added,
        (
            "You halved the activations and stopped there. Where do the float16 operands of the "
            "products come from?",
            {"casts_input": False, "casts_parameters": False},
        ),
        ("You left out the cast of the input.", {"casts_input": False}),
        ("You left out the casts of the weights and biases.", {"casts_parameters": False}),
        (
            "You counted all casts after the autocast region. When the region ends, the cache of "
            "casts is cleared; only what the backward pass reads stays.",
            {"inside": True},
        ),
        (
            "You counted no casts of parameters after the autocast region. The backward pass "
            "reads each layer's cast weight to compute the gradient of that layer's input.",
            {"after": slice(0)},
        ),
        (
            "You counted the first layer's cast after the autocast region. Its input needs no "
            "gradient, so nothing reads that cast.",
            {"after": slice(None)},
        ),
    ),
)


# fewest_rows: where autocast begins to pay


def _measure_fewest(widths: Widths) -> int:
    """Find the fewest rows with which autocast adds less than float32, within the region."""

    def pays(rows: int) -> bool:
        return _measure_added(rows, widths, True) < _measure_added(rows, widths, False)

    many = 1024  # what autocast saves grows with the rows
    while not pays(many):
        many *= 2
    few = 1
    while few < many:
        rows = (few + many) // 2
        if pays(rows):
            many = rows
        else:
            few = rows + 1
    return few


def _fewest(widths: Widths, *, bias: bool = True, casts_input: bool = True, extra: int = 1) -> int:
    parameters = sum(
        inputs * outputs + (outputs if bias else 0) for inputs, outputs in pairwise(widths)
    )
    saved = sum(widths[1:]) - (widths[0] if casts_input else 0)
    return parameters // saved + extra


FEWEST = Predict(
    name="fewest_rows",
    points=3,
    minutes=20,
    visible=(
        {"widths": [1024, 1024, 1024, 1024, 1024]},
        {"widths": [512, 2048, 512]},
        {"widths": [128, 512]},
    ),
    hidden=lambda random: [
        {"widths": [width, *_widths(random, layers), 2 * width]}
        for layers in (0, 1, 3)
        for width in (64 * random.randrange(1, 8),)
    ],
    measure=_measure_fewest,
    gpu=T4,
    mistakes=of(
        _fewest,
        (
            "You left out the cast of the input: 2 bytes per element of each row.",
            {"casts_input": False},
        ),
        ("You left out the biases. They are cast as well.", {"bias": False}),
        (
            "You are one row short. The question is from how many rows on autocast takes less, "
            "not as much.",
            {"extra": 0},
        ),
        Mistake(
            "You compared with the float32 parameters. They are allocated in both cases; autocast "
            "adds 2 bytes per parameter.",
            lambda widths: 2 * (_fewest(widths) - 1) + 1,
        ),
    ),
)


# which_recipe: told from what was allocated

RECIPES = ("float32", "autocast", "16 bit", "16 bit, float32 copies")


def _observe_recipe(recipe: str, rows: int, width: int, layers: int) -> Observation:
    """Train one step with AdamW, and read what is requested on the way.

    Args:
        recipe: one of `RECIPES`.
        rows: of the batch.
        width: of the layers, and of the input.
        layers: how many.
    """
    from vramlab.programs.master_weights import MasterWeights

    half = recipe.startswith("16 bit")
    dtype = torch.float16 if half else torch.float32
    take_workspaces()
    start_bytes = _requested()
    model = _chain([width] * (layers + 1), dtype)
    x = torch.zeros(rows, width, dtype=dtype, device="cuda")
    readings = {"before": _requested() - start_bytes}
    with torch.autocast("cuda", dtype=torch.float16, enabled=recipe == "autocast"):
        y = model(x)
        readings["forward"] = _requested() - start_bytes
        loss = y.float().sum()
    loss.backward()
    optimizer: torch.optim.Optimizer | MasterWeights
    if recipe.endswith("copies"):
        optimizer = MasterWeights(model.parameters(), torch.optim.AdamW)
    else:
        optimizer = torch.optim.AdamW(model.parameters())
    optimizer.step()
    optimizer.zero_grad()
    del x, y, loss
    readings["step"] = _requested() - start_bytes
    evidence = {"rows": rows, "width": width, "layers": layers, "readings": readings}
    return Observation(evidence, recipe)


def _recipe(rows: int, width: int, layers: int, readings: Mapping[str, int]) -> str:
    """Return the right answer, by reasoning."""
    parameters = layers * (width * width + width)
    if readings["step"] == 6 * parameters:
        return "16 bit"
    if readings["step"] == 14 * parameters:
        return "16 bit, float32 copies"
    added = readings["forward"] - readings["before"]
    return "float32" if added == 4 * layers * rows * width else "autocast"


def _by_growth_alone(rows: int, width: int, layers: int, readings: Mapping[str, int]) -> str:
    recipe = _recipe(rows, width, layers, readings)
    if recipe not in ("float32", "autocast"):
        return recipe
    less = readings["forward"] - readings["before"] < 4 * layers * rows * width
    return "autocast" if less else "float32"


def _hidden_recipe(random: Random) -> list[Config]:
    return [
        {"recipe": recipe, "rows": rows, "width": width, "layers": random.randrange(2, 7)}
        for recipe in RECIPES
        for rows, width in (
            (random.randrange(20, 200), 512),
            (random.randrange(2000, 4000), 64 * random.randrange(2, 8)),
        )
    ]


RECIPE = Diagnose(
    name="which_recipe",
    points=3,
    minutes=20,
    visible=(
        {"recipe": "float32", "rows": 2048, "width": 512, "layers": 4},
        {"recipe": "autocast", "rows": 2048, "width": 512, "layers": 4},
        {"recipe": "autocast", "rows": 82, "width": 512, "layers": 2},
        {"recipe": "16 bit", "rows": 2048, "width": 512, "layers": 4},
        {"recipe": "16 bit, float32 copies", "rows": 64, "width": 512, "layers": 4},
    ),
    hidden=_hidden_recipe,
    observe=_observe_recipe,
    gpu=T4,
    mistakes=(
        Mistake(
            "You assumed that autocast always adds less than float32. With few rows, it adds more.",
            _by_growth_alone,
        ),
        Mistake(
            "You looked only at the weights. Two of the recipes have float32 weights, and two "
            "have 16-bit weights.",
            lambda rows, width, layers, readings: (
                "float32"
                if readings["before"] == 4 * (layers * (width * width + width) + rows * width)
                else "16 bit"
            ),
        ),
    ),
)


# train: underflow, a stale cache, and clipping

WIDTH = 32
LAYERS = 12
ROWS = 8192
SHARE = 0.001
"""Of the loss in a larger one, as the notebook tells: it makes gradients small."""

LEARNING_RATE = 2e5
LARGEST_NORM = 2e-6
"""What gradients are clipped to. They are 100 times as long: every step but the last goes 0.4."""

QUIET = 0.02
"""Times the other inputs are the last step's: its gradient is shorter, and is not clipped."""

ROOM_BYTES = 2 * MIB
"""Less than what float16 saves: 12 activations of 8192 x 32 numbers, 2 B each."""

CLOSE = 0.03
"""Of the way that the weights go in float32. float16 with a scale comes within 0.01."""


def _train_in_float32(model: torch.nn.Module, load: Callable[[int], Any], steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for step in range(steps):
        inputs, targets = load(step)
        loss = SHARE * torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
        optimizer.step()
        optimizer.zero_grad()


def _mend(model: torch.nn.Module, load: Callable[[int], Any], steps: int) -> None:
    """Solve the task."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    scaler = torch.amp.GradScaler("cuda")
    for step in range(steps):
        inputs, targets = load(step)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = SHARE * torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def _model_and_data(run: Run, steps: int, seed: int) -> tuple[Any, ...]:
    torch.manual_seed(seed)
    model = tanh_chain(WIDTH, LAYERS)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3**0.5)  # so that outputs do not vanish over the layers

    def load(index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(1000 * seed + index)
        inputs = torch.randn(ROWS, WIDTH, generator=generator)
        if index == steps - 1:
            inputs *= QUIET
        targets = inputs.roll(1, dims=1) / 10
        return inputs.to("cuda"), targets.to("cuda")

    return model, run.noting(load), steps


def _where_it_ended(run: Run) -> str:
    return (
        f"{run.ran_out} in step {len(run.noted)} of {run.case['steps']}. Which activations could "
        "take two bytes per element?"
    )


def _off(run: Run) -> float:
    """How far off the weights are, as a share of the way that they go in float32."""
    return float((run.results - run.expected).norm() / run.expected.norm())


def _close_changes(run: Run, expected: torch.Tensor) -> None:
    check_order(run.noted, run.case["steps"])
    if _off(run) <= CLOSE:  # nan is not close either
        return
    if not run.results.isfinite().all():
        raise NotFixed(
            "It fits, but some weights are infinite or nan. Which numbers were too large for "
            "float16?"
        )
    times = times_as_far(run.results, expected)
    if times < 0.5:
        raise NotFixed(
            f"It fits, but the weights have moved {times:.3f} times as far as in float32. Which "
            "gradients underflow in float16, and were they unscaled before clipping?"
        )
    if times > 1 + CLOSE:
        raise NotFixed(
            f"It fits, but the weights have moved {times:.2f} times as far as in float32. Are "
            "gradients clipped at their true size, and only where they are larger than 2e-6? "
            "clip_grad_norm_ divides by the norm plus 1e-6, which counts here. And does every "
            "forward pass use the current weights?"
        )
    raise NotFixed(
        f"It fits, but the weights' changes are {_off(run):.0%} off those of float32 training. "
        "Does every forward pass use the current weights?"
    )


def _changes_in_float16(run: Run) -> Any:
    seen: Counter[torch.dtype] = Counter()

    def look(func: Any, args: Sequence[Any], kwargs: object) -> None:
        if base_name(func) in PRODUCTS:
            seen.update(each.dtype for each in args if isinstance(each, torch.Tensor))

    run.work.watchers.append(look)
    changes = weight_changes(run.inputs[0], lambda: run.program(*run.inputs))
    if seen[torch.bfloat16]:
        raise NotFixed(
            "It fits, but computes in bfloat16, which a T4 has no hardware for. Make float16 "
            "work: which numbers underflow?"
        )
    if run.program is not _train_in_float32 and 2 * seen[torch.float16] < seen.total():
        raise NotFixed(
            "It fits, but hardly a product is in float16. Keep autocast to float16, and scale the "
            "loss so that gradients do not underflow."
        )
    return changes


TRAIN = Fix(
    name="train",
    points=5,
    minutes=30,
    visible=({"steps": 3, "seed": 1},),
    hidden=lambda random: [{"steps": 4, "seed": random.randrange(2, 1000)}],
    trial=Repair(
        gpu=T4.but(values=True),
        build=_model_and_data,
        call=_changes_in_float16,
        reference=_train_in_float32,
        least_share=0.99,  # `CLOSE` would not see the loss of some rows
        any_precision=True,  # and what `_changes_in_float16` says
        fits=lambda model, load, steps: _mend(model, load, 2),  # later steps take no more
        limit=room(ROOM_BYTES),
        ran_out=_where_it_ended,
        compare=_close_changes,
        report=lambda run: f"{_off(run):.2%} off, {run.peak_report}",
    ),
)

EXERCISE = Exercise(
    name="15_mixed_precision",
    module=__name__,
    tasks=(ADDED, FEWEST, RECIPE, TRAIN),
    core=("which_recipe", "train"),
)
