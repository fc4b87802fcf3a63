"""Exercise 17: what offloading moves, what it leaves on the GPU, and programs that need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vramlab.units import MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, of
from vramlab_classroom.judge.task import Diagnose, Exercise, Fix, NotFixed, Observation, Predict
from vramlab_course.tasks.batches import check_order, numbered_batch
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.gradients import Gradients, collect_gradients, require_gradients
from vramlab_course.tasks.readings import growth_bytes
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.results import parameters_of, to_host
from vramlab_course.tasks.weight_changes import require_same_training

T4 = GPU("T4")


def _chain(layers: int, width: int, bias: bool = False) -> torch.nn.Sequential:
    parts: list[torch.nn.Module] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width, bias=bias), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts)


# moved_bytes: what goes to the host in forward

WAYS = ("save_on_cpu", "no parameters", "each once")


def _measure_moved(
    way: str, layers: int, batch: int, width: int, bias: bool, input_gradient: bool
) -> int:
    from vramlab.measure import record_transfers
    from vramlab.programs.offloading import SavedOnHost

    model = _chain(layers, width, bias).to("cuda")
    addresses = {parameter.data_ptr() for parameter in model.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.data_ptr() in addresses else tensor.cpu()

    hooks = {
        "save_on_cpu": torch.autograd.graph.save_on_cpu(),
        "no parameters": torch.autograd.graph.saved_tensors_hooks(
            pack, lambda tensor: tensor.to("cuda")
        ),
        "each once": SavedOnHost(model.parameters()),
    }[way]
    x = torch.zeros(batch, width, device="cuda", requires_grad=input_gradient)
    with record_transfers() as transfers, hooks:
        model(x).square().mean()
    return transfers.to_host_bytes


def _moved(
    way: str,
    layers: int,
    batch: int,
    width: int,
    bias: bool,
    input_gradient: bool,
    *,
    times: int = 2,
    weights: bool = True,
    first_weight: bool | None = None,
    biases: bool = False,
    directions: int = 1,
) -> int:
    """Return the answer, or a mistaken one.

    Args:
        way: as in the task; and so on.
        times: how often an activation moves.
        weights: they move.
        first_weight: so does the first; None: if the input needs a gradient.
        biases: they move, too.
        directions: in which bytes are counted.
    """
    if way == "each once":
        return directions * 4 * (1 + layers) * batch * width
    moved = (1 + times * layers) * batch * width
    if way == "save_on_cpu":
        first = input_gradient if first_weight is None else first_weight
        moved += weights * (layers - 1 + first) * width * width + (biases and bias) * layers * width
    return directions * 4 * moved


_MOVED = {"layers": 4, "batch": 512, "width": 256, "bias": False, "input_gradient": False}

MOVED = Predict(
    name="moved_bytes",
    points=4,
    minutes=20,
    visible=(
        {**_MOVED, "way": "save_on_cpu"},
        {**_MOVED, "way": "no parameters"},
        {**_MOVED, "way": "each once"},
        {**_MOVED, "way": "save_on_cpu", "bias": True},
        {**_MOVED, "way": "save_on_cpu", "input_gradient": True},
        {**_MOVED, "way": "save_on_cpu", "layers": 1},
    ),
    hidden=lambda random: [
        {
            "way": way,
            "layers": random.randrange(1, 9),
            "batch": random.randrange(1, 2000),
            "width": random.randrange(8, 700),
            "bias": bias,
            "input_gradient": input_gradient,
        }
        for way in WAYS
        for bias, input_gradient in ((False, True), (True, False), (True, True))
    ],
    measure=_measure_moved,
    gpu=T4,
    mistakes=of(
        _moved,
        (
            "You moved each activation once. ReLU saves its output, and the next op saves the "
            "same tensor as its input; only one of the three ways checks whether a tensor was "
            "sent already.",
            {"times": 1},
        ),
        (
            "You left the weights on the GPU. Only hooks that recognize parameters do that.",
            {"weights": False},
        ),
        (
            "You moved the first weight in every case. It is saved for the gradient of the input, "
            "so only if the input needs one.",
            {"first_weight": True},
        ),
        (
            "You never moved the first weight. It is saved if the input needs a gradient.",
            {"first_weight": False},
        ),
        ("You moved the biases. No gradient needs a bias, so it is not saved.", {"biases": True}),
        (
            "You counted both directions. The question is how much goes to the host.",
            {"directions": 2},
        ),
    ),
)


# held_bytes: what the GPU holds between backward and step

HELD = {"all on the GPU": 16, "optimizer on the host": 4, "gradients leave": 2}
"""Bytes per parameter: for naming mistakes, not for grading."""


def _measure_held(way: str, layers: int, width: int) -> int:
    from vramlab.programs.offloading import HostOptimizer

    x = torch.zeros(16, width, dtype=torch.float16, device="cuda")
    first = _chain(layers, width).half().to("cuda")
    first(x).float().square().mean().backward()  # libraries have their workspaces from here on
    del first

    def train() -> list[object]:
        model = _chain(layers, width).half().to("cuda")
        optimizer: object
        if way == "all on the GPU":
            masters = [torch.nn.Parameter(p.detach().float()) for p in model.parameters()]
            optimizer = _stepped_adam(masters)
        else:
            leave = way == "gradients leave"
            optimizer = HostOptimizer(model.parameters(), torch.optim.AdamW, as_they_come=leave)
        model(x).float().square().mean().backward()
        return [model, optimizer]

    return growth_bytes(train)


def _stepped_adam(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """With its states, and without gradients."""
    adam = torch.optim.AdamW(parameters)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    adam.step()
    adam.zero_grad()
    return adam


def _held(way: str, layers: int, width: int, per_parameter: Mapping[str, int]) -> int:
    return per_parameter[way] * layers * width * width


LEFT = Predict(
    name="held_bytes",
    points=3,
    minutes=10,
    visible=tuple({"way": way, "layers": 4, "width": 1024} for way in HELD),
    hidden=lambda random: [
        {"way": way, "layers": random.randrange(1, 9), "width": 512 * random.choice((1, 2, 4))}
        for way in HELD
        for _ in range(2)
    ],
    measure=_measure_held,
    gpu=T4,
    mistakes=of(
        _held,
        (
            "You left out the master weights: the float32 copy of the parameters that Adam "
            "updates.",
            {"per_parameter": {**HELD, "all on the GPU": 12}},
        ),
        (
            "You counted float32 gradients. The GPU computes gradients in the dtype of the "
            "parameters.",
            {"per_parameter": {**HELD, "all on the GPU": 18, "optimizer on the host": 6}},
        ),
        (
            "You freed the gradients before step() in both ways. In one of them they stay until "
            "step().",
            {"per_parameter": {**HELD, "optimizer on the host": 2}},
        ),
        (
            "You kept the gradients until step() in both ways. In one of them each has been moved "
            "to the host by then.",
            {"per_parameter": {**HELD, "gradients leave": 4}},
        ),
    ),
)


# what_is_there: told from the copies of a step

ANSWERS = ("nothing", "activations", "optimizer", "layers")


def _observe_copies(
    offloaded: str, width: int, layers: int, batch: int, length: int
) -> Observation:
    """Train a stack of transformer layers in float16, and read the copies of its second step.

    Args:
        offloaded: one of `ANSWERS`.
        width: of the layers.
        layers: how many.
        batch: sequences in a step.
        length: tokens of each.
    """
    from vramlab_course.lessons.l17_offloading.experiment import read_step

    parts = {"layers": "parameters"}
    chosen = {} if offloaded == "nothing" else {parts.get(offloaded, offloaded): True}
    reading = read_step(width, layers, batch, length, **chosen)
    readings = {
        "parameters": reading.parameters,
        "to the host": reading.transfers.to_host_bytes,
        "to the GPU": reading.transfers.to_gpu_bytes,
    }
    return Observation({"readings": readings}, offloaded)


def _by_equality(readings: Mapping[str, int], equal: str) -> str:
    if not readings["to the host"]:
        return "nothing"
    return equal if readings["to the host"] == readings["to the GPU"] else "layers"


_STACK = {"width": 128, "layers": 2, "batch": 2, "length": 64}

WHAT = Diagnose(
    name="what_is_there",
    points=3,
    minutes=20,
    visible=(
        {**_STACK, "offloaded": "optimizer"},
        {**_STACK, "offloaded": "activations"},
        {**_STACK, "offloaded": "layers"},
    ),
    hidden=lambda random: [
        {
            "offloaded": offloaded,
            "width": 64 * random.randrange(1, 4),
            "layers": random.randrange(1, 3),
            "batch": random.randrange(1, 5),
            "length": 32 * random.randrange(1, 5),
        }
        for offloaded in (*ANSWERS, "activations")
    ],
    observe=_observe_copies,
    gpu=T4,
    mistakes=of(
        _by_equality,
        (
            "You took equal traffic as a sign of an offloaded optimizer. Activations also come "
            "back in the same amount: compare the bytes with the parameters.",
            {"equal": "optimizer"},
        ),
        (
            "You took equal traffic as a sign of offloaded activations. An offloaded optimizer "
            "moves as many bytes of gradients out as of parameters back: compare the bytes with "
            "the parameters.",
            {"equal": "activations"},
        ),
        Mistake(
            "You counted 4 bytes per parameter in each direction. In float16, a gradient takes 2 "
            "bytes, and so does the updated parameter.",
            lambda readings: (
                "optimizer"
                if readings["to the host"] == 4 * readings["parameters"]
                else _by_equality(readings, "activations")
            ),
        ),
    ),
)


# train_step and train: programs that do not fit

WIDTH, ROWS = 256, 2048
ACTIVATION_BYTES = 4 * WIDTH * ROWS
WEIGHT_BYTES = 4 * WIDTH * WIDTH


def _seeded_chain(layers: int) -> torch.nn.Sequential:
    torch.manual_seed(layers)
    model = _chain(layers, WIDTH).to("cuda")
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(6**0.5)  # so that outputs neither vanish nor explode over many layers
    return model


def _step(model: torch.nn.Module, x: torch.Tensor) -> None:
    with torch.autograd.graph.save_on_cpu():
        loss = model(x).square().mean()
    loss.backward()


def _model_and_input(run: Run, layers: int) -> tuple[torch.nn.Sequential, torch.Tensor]:
    return _seeded_chain(layers), numbered_batch(0, ROWS, WIDTH)


def _held_activations(run: Run) -> str:
    return (
        f"{run.ran_out}, with {format_bytes(run.peak_bytes)} allocated: "
        f"{run.peak_bytes / ACTIVATION_BYTES:.1f} activations. Which of them are needed only in "
        "the backward pass?"
    )


def _same_gradients(run: Run, expected: Gradients) -> None:
    run.require_no_more_flops(
        "it recomputes layers. Here the activations have to be stored, but not on the GPU."
    )
    require_gradients(run.results, expected)


STEP = Fix(
    name="train_step",
    points=2,
    minutes=10,
    visible=({"layers": 10},),
    hidden=lambda random: [{"layers": random.randrange(11, 15)}],
    trial=Repair(
        gpu=T4.but(values=True),
        build=_model_and_input,
        reference=_step,
        limit=room(ACTIVATION_BYTES),
        ran_out=_held_activations,
        collect=collect_gradients,
        compare=_same_gradients,
    ),
)


def _train(model: torch.nn.Module, load: Callable[[int], torch.Tensor], steps: int) -> None:
    parameters = list(model.parameters())
    on_host = [torch.nn.Parameter(parameter.detach().cpu()) for parameter in parameters]
    optimizer = torch.optim.AdamW(on_host, lr=0.01)
    for step in range(steps):
        model(load(step)).square().mean().backward()
        for parameter, copy in zip(parameters, on_host, strict=True):
            assert parameter.grad is not None
            copy.grad, parameter.grad = parameter.grad.cpu(), None
        optimizer.step()
        with torch.no_grad():
            for parameter, copy in zip(parameters, on_host, strict=True):
                parameter.copy_(copy)


def _model_and_batches(run: Run, layers: int, steps: int) -> tuple[Any, ...]:
    load = run.noting(lambda index: numbered_batch(index, 16, WIDTH))
    return _seeded_chain(layers), load, steps


def _held_copies(run: Run) -> str:
    times = run.peak_bytes / (run.case["layers"] * WEIGHT_BYTES)
    return (
        f"{run.ran_out} in step {len(run.noted)} of {run.case['steps']}, with "
        f"{format_bytes(run.peak_bytes)} allocated: {times:.1f} times the parameters. Which of "
        "their copies does the GPU not compute with?"
    )


def _weights(run: Run, returned: object) -> torch.Tensor:
    parameters = list(parameters_of(run.inputs[0]))
    if {parameter.device.type for parameter in parameters} != {"cuda"}:
        raise NotFixed("It fits, but the model is not on the GPU afterwards.")
    return torch.stack([to_host(parameter) for parameter in parameters])


def _same_weights(run: Run, expected: torch.Tensor) -> None:
    check_order(run.noted, run.case["steps"])
    require_same_training(run.results, expected)


TRAIN = Fix(
    name="train",
    points=4,
    minutes=25,
    visible=({"layers": 24, "steps": 2},),
    hidden=lambda random: [{"layers": random.randrange(24, 40), "steps": 4}],
    trial=Repair(
        gpu=T4.but(values=True),
        build=_model_and_batches,
        reference=_train,
        limit=room(2 * MIB),
        ran_out=_held_copies,
        collect=_weights,
        compare=_same_weights,
    ),
)

EXERCISE = Exercise(
    name="17_offloading",
    module=__name__,
    tasks=(MOVED, LEFT, WHAT, STEP, TRAIN),
    core=("held_bytes", "train_step"),
)
