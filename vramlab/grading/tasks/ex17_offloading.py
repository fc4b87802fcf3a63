"""Exercise 17: what offloading moves, what it leaves on the GPU, and programs that need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from vramlab.grading.batches import check_order, noting, numbered_batch
from vramlab.grading.gradients import require_gradients
from vramlab.grading.limits import limited, peak_report
from vramlab.grading.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    Mistake,
    NotFixed,
    Observation,
    Predict,
)
from vramlab.units import MIB, format_bytes

if TYPE_CHECKING:
    import torch

GPU = "T4"
"""A grade names its GPU, so that it does not depend on the machine that grades."""


def _chain(layers: int, width: int, bias: bool = False) -> torch.nn.Sequential:
    import torch

    parts: list[torch.nn.Module] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width, bias=bias), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts)


# moved_bytes: what goes to the host in forward

WAYS = ("save_on_cpu", "no parameters", "each once")


def _measure_moved(
    way: str, layers: int, batch: int, width: int, bias: bool, input_gradient: bool
) -> int:
    import torch
    from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

    import vramlab
    from vramlab.measure import record_transfers
    from vramlab.techniques.offloading import SavedOnHost

    with vramlab.VirtualGPU(GPU):
        model = _chain(layers, width, bias).to("cuda")
        addresses = {parameter.data_ptr() for parameter in model.parameters()}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            return tensor if tensor.data_ptr() in addresses else tensor.cpu()

        hooks = {
            "save_on_cpu": save_on_cpu(),
            "no parameters": saved_tensors_hooks(pack, lambda tensor: tensor.to("cuda")),
            "each once": SavedOnHost(model.parameters()),
        }[way]
        x = torch.zeros(batch, width, device="cuda", requires_grad=input_gradient)
        with record_transfers() as transfers, hooks:
            loss = model(x).square().mean()
        del model, x, loss
    return transfers.to_host_bytes


def _moved(
    way: str,
    layers: int,
    batch: int,
    width: int,
    input_gradient: bool,
    *,
    times: int = 2,
    weights: int | None = None,
) -> int:
    """The answer, and the mistaken ones: how often an activation moves, and how many weights."""
    rows, weight = 4 * batch * width, 4 * width * width
    if way == "each once":
        return (1 + layers) * rows
    if weights is None:
        weights = layers if input_gradient else layers - 1
    return (1 + times * layers) * rows + (weights * weight if way == "save_on_cpu" else 0)


_MOVED = {"layers": 4, "batch": 512, "width": 256, "bias": False, "input_gradient": False}

MOVED = Predict(
    name="moved_bytes",
    points=4,
    minutes=15,
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
    mistakes=(
        Mistake(
            "You moved each activation once. ReLU saves its output, and the op after it saves the "
            "same tensor as its input; only one of the three ways looks whether it has been sent.",
            lambda way, layers, batch, width, bias, input_gradient: _moved(
                way, layers, batch, width, input_gradient, times=1
            ),
        ),
        Mistake(
            "You left the weights on the GPU. Only hooks that look for parameters do that.",
            lambda way, layers, batch, width, bias, input_gradient: _moved(
                way, layers, batch, width, input_gradient, weights=0
            ),
        ),
        Mistake(
            "You moved the first weight in every case. It is saved for the gradient of the input, "
            "if somebody needs that.",
            lambda way, layers, batch, width, bias, input_gradient: _moved(
                way, layers, batch, width, input_gradient, weights=layers
            ),
        ),
        Mistake(
            "You never moved the first weight. It is saved where the input needs a gradient.",
            lambda way, layers, batch, width, bias, input_gradient: _moved(
                way, layers, batch, width, input_gradient, weights=layers - 1
            ),
        ),
        Mistake(
            "You moved the biases. No gradient needs a bias, so it is not saved.",
            lambda way, layers, batch, width, bias, input_gradient: (
                _moved(way, layers, batch, width, input_gradient)
                + (4 * width * layers if bias and way == "save_on_cpu" else 0)
            ),
        ),
        Mistake(
            "You counted both ways. The question is what goes to the host.",
            lambda way, layers, batch, width, bias, input_gradient: (
                2 * _moved(way, layers, batch, width, input_gradient)
            ),
        ),
    ),
)


# held_bytes: what the GPU holds between backward and step

HELD = {"all on the GPU": 16, "optimizer on the host": 4, "gradients leave": 2}
"""Bytes per parameter: for naming mistakes, not for grading."""


def _measure_held(way: str, layers: int, width: int) -> int:
    import torch

    import vramlab
    from vramlab.techniques.offloading import HostOptimizer

    with vramlab.VirtualGPU(GPU):
        x = torch.zeros(16, width, dtype=torch.float16, device="cuda")
        first = _chain(layers, width).half().to("cuda")
        first(x).float().square().mean().backward()
        del first
        before_bytes = torch.cuda.memory_allocated()  # the input, and libraries' workspaces
        model = _chain(layers, width).half().to("cuda")
        if way == "all on the GPU":
            masters = [torch.nn.Parameter(p.detach().float()) for p in model.parameters()]
            adam = torch.optim.AdamW(masters)
            for master in masters:
                master.grad = torch.zeros_like(master)
            adam.step()
            adam.zero_grad()
        else:
            adam, masters = None, []
            leave = way == "gradients leave"
            host = HostOptimizer(model.parameters(), torch.optim.AdamW, as_they_come=leave)
        model(x).float().square().mean().backward()
        held_bytes = torch.cuda.memory_allocated() - before_bytes
        del model, masters, adam, x
        if way != "all on the GPU":
            del host
    return held_bytes


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
    mistakes=(
        Mistake(
            "You forgot the float32 copy of the parameters, which Adam works on.",
            lambda way, layers, width: _held(way, layers, width, {**HELD, "all on the GPU": 12}),
        ),
        Mistake(
            "You counted gradients in float32. The GPU computes them in the dtype of the "
            "parameters.",
            lambda way, layers, width: _held(
                way, layers, width, {**HELD, "all on the GPU": 18, "optimizer on the host": 6}
            ),
        ),
        Mistake(
            "You let gradients go before step() in both ways. In one of them they wait for it.",
            lambda way, layers, width: _held(
                way, layers, width, {**HELD, "optimizer on the host": 2}
            ),
        ),
        Mistake(
            "You kept the gradients in both ways. In one of them each has left by then.",
            lambda way, layers, width: _held(way, layers, width, {**HELD, "gradients leave": 4}),
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
    import vramlab
    from vramlab.experiments.offloading import read_step

    parts = {"layers": "parameters"}
    chosen = {} if offloaded == "nothing" else {parts.get(offloaded, offloaded): True}
    with vramlab.VirtualGPU(GPU):
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
    minutes=15,
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
    mistakes=(
        Mistake(
            "You took equal traffic for the optimizer's. Activations come back as they went, too: "
            "hold the bytes against the parameters.",
            lambda readings: _by_equality(readings, "optimizer"),
        ),
        Mistake(
            "You took equal traffic for activations. Gradients that go and parameters that come "
            "back are equal, too: hold the bytes against the parameters.",
            lambda readings: _by_equality(readings, "activations"),
        ),
        Mistake(
            "You counted 4 bytes per parameter each way. In float16 a gradient has 2, and so has "
            "the parameter that comes back.",
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
SAME = 1e-5


def _seeded_chain(layers: int) -> torch.nn.Sequential:
    import torch

    torch.manual_seed(layers)
    model = _chain(layers, WIDTH).to("cuda")
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(6**0.5)  # so that outputs neither vanish nor explode over many layers
    return model


def _step(model: torch.nn.Module, x: torch.Tensor) -> None:
    from torch.autograd.graph import save_on_cpu

    with save_on_cpu():
        loss = model(x).square().mean()
    loss.backward()


def _run_step(step: Any, layers: int) -> tuple[list[torch.Tensor], list[int]]:
    """Run one step on a fresh model; its gradients on the host, and how often each layer ran."""
    import torch

    model, x = _seeded_chain(layers), numbered_batch(0, ROWS, WIDTH)
    linears = [layer for layer in model if isinstance(layer, torch.nn.Linear)]
    runs = [0] * layers

    def count(index: int) -> Callable[..., None]:
        def counted(*_: Any) -> None:
            runs[index] += 1

        return counted

    for index, linear in enumerate(linears):
        linear.register_forward_pre_hook(count(index))
    step(model, x)
    gradients = [p.grad.detach().cpu() for p in model.parameters() if p.grad is not None]
    return gradients, runs


def _try_step(answer: Any, layers: int) -> str:
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU, values=True):
        expected, _ = _run_step(_step, layers)
        limit_bytes = torch.cuda.max_memory_reserved() + ACTIVATION_BYTES

    def where(held_bytes: int) -> str:
        return (
            f"where it holds {format_bytes(held_bytes)}: {held_bytes / ACTIVATION_BYTES:.1f} "
            "activations. Which of them are needed only in backward?"
        )

    with vramlab.VirtualGPU(GPU, values=True):
        with limited(limit_bytes, where):
            gradients, runs = _run_step(answer, layers)
        report = peak_report(limit_bytes)
    if max(runs) > 1:
        raise NotFixed(
            "It fits, but computes layers twice. Here the activations have to be kept, elsewhere."
        )
    require_gradients(gradients, expected, SAME)
    return report


STEP = Fix(
    name="train_step",
    points=2,
    minutes=10,
    visible=({"layers": 10},),
    hidden=lambda random: [{"layers": random.randrange(11, 15)}],
    trial=_try_step,
)


def _train(model: torch.nn.Module, load: Callable[[int], torch.Tensor], steps: int) -> None:
    import torch

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


def _run_training(
    train: Any, layers: int, steps: int, begun: list[int]
) -> tuple[list[torch.Tensor], int]:
    import torch

    model = _seeded_chain(layers)
    train(model, noting(lambda index: numbered_batch(index, 16, WIDTH), begun), steps)
    places = {parameter.device.type for parameter in model.parameters()}
    if places != {"cuda"}:
        raise NotFixed("It fits, but afterwards the model is not on the GPU.")
    return [p.detach().cpu() for p in model.parameters()], torch.cuda.max_memory_reserved()


def _try_training(answer: Any, layers: int, steps: int) -> str:
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU, values=True):
        expected, reserved_bytes = _run_training(_train, layers, steps, [])
    limit_bytes = reserved_bytes + 2 * MIB
    begun: list[int] = []

    def where(held_bytes: int) -> str:
        return (
            f"in step {len(begun)} of {steps}, where it holds {format_bytes(held_bytes)}: "
            f"{held_bytes / (layers * WEIGHT_BYTES):.1f} times the parameters. Which of their "
            "copies does the GPU not compute with?"
        )

    with vramlab.VirtualGPU(GPU, values=True):
        with limited(limit_bytes, where):
            learned, _ = _run_training(answer, layers, steps, begun)
        report = peak_report(limit_bytes)
    check_order(begun, steps)
    for wanted, parameter in zip(expected, learned, strict=True):
        if not torch.allclose(wanted, parameter, rtol=0, atol=1e-4):
            raise NotFixed("It fits, but the model has learned something else.")
    return report


def _hidden_training(random: Random) -> list[Config]:
    return [{"layers": random.randrange(24, 40), "steps": 2}]


TRAIN = Fix(
    name="train",
    points=4,
    minutes=20,
    visible=({"layers": 24, "steps": 2},),
    hidden=_hidden_training,
    trial=_try_training,
)

EXERCISE = Exercise(
    name="17_offloading",
    module=__name__,
    tasks=(MOVED, LEFT, WHAT, STEP, TRAIN),
)
