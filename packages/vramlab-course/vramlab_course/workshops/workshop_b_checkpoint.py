"""Workshop B: a checkpoint function, compared with PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import Config, Exercise, NotFixed, Workshop
from vramlab_course.tasks.building import BARE_T4, Building
from vramlab_course.tasks.gradients import require_gradients
from vramlab_course.tasks.repair import Run
from vramlab_course.tasks.results import named_parameters_of, on_host, require_close, to_host

ROWS, WIDTH = 256, 64
ROOM_BYTES = 4 * 4 * ROWS * WIDTH
"""Beyond what PyTorch's own checkpoints hold: four states of the chain. A block whose own results
are kept holds nine more."""

MORE_OPERATORS = 6
"""For each block, beyond PyTorch's own: there is more than one way."""


Checkpoint = Callable[..., Any]


@dataclass(frozen=True)
class Afterwards:
    """What a step has left, on the host."""

    loss: torch.Tensor
    gradients: dict[str, torch.Tensor]
    input_gradient: torch.Tensor | None
    drawn: Mapping[str, torch.Tensor]
    """Random numbers that are drawn next, by device."""

    calls: Sequence[int]
    """How often each block was called."""


def _blocks(count: int, dropout: float) -> torch.nn.Sequential:
    blocks = torch.nn.Sequential()
    for _ in range(count):
        block = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )
        if dropout:
            block.append(torch.nn.Dropout(dropout))
        blocks.append(block)
    return blocks


def _chain(
    run: Run, blocks: int, input_gradient: bool = True, dropout: float = 0.0
) -> tuple[Any, ...]:
    torch.manual_seed(blocks)
    model = _blocks(blocks, dropout).to("cuda")
    x = torch.randn(ROWS, WIDTH).to("cuda").requires_grad_(input_gradient)
    torch.manual_seed(blocks + 1)
    return model, x


def _counting(run: Run, block: torch.nn.Module) -> Callable[..., Any]:
    """Return a block as a function, and note its calls; what it computes is the program's."""

    def function(x: torch.Tensor, *others: Any) -> torch.Tensor:
        run.noted.append(block)
        run.require_intact()
        with run.record.marking("block"):
            y: torch.Tensor = block(x)
        if others:
            y = y * torch.rand(())  # of the CPU's generator
        for other in others:
            y = y + other * x
        return y

    return function


def _step(run: Run, others: Sequence[Any] = ()) -> torch.Tensor:
    """Take a batch forward and backward through the chain, with a checkpoint for every block."""
    model, x = run.inputs
    for block in model:
        run.note_given([x, *others])
        y = run.program(_counting(run, block), x, *others)
        run.require_intact()
        if not isinstance(y, torch.Tensor):
            raise NotFixed(
                "It has to return what the function returns, a tensor; it returns a "
                f"{type(y).__name__}."
            )
        if not y.requires_grad:
            raise NotFixed(
                "What it returns needs no gradient, though the function has parameters that do. "
                "When does autograd call a Function's backward?"
            )
        x = y
    loss: torch.Tensor = x.square().mean()
    del x, y
    loss.backward()
    return loss.detach()


def _step_with_others(run: Run) -> torch.Tensor:
    with run.work.pausing():
        scale = torch.tensor(0.5).to("cuda").requires_grad_()
    run.noted.append(scale)
    return _step(run, (scale, 0.25))


def _after_step(run: Run, returned: torch.Tensor) -> Afterwards:
    model, x = run.inputs
    scales = [each for each in run.noted if isinstance(each, torch.Tensor)]
    named = [*named_parameters_of(model), *((f"scale {n}", s) for n, s in enumerate(scales))]
    return Afterwards(
        loss=on_host(returned, "The loss is not a tensor."),
        gradients={name: to_host(each.grad) for name, each in named if each.grad is not None},
        input_gradient=None if x.grad is None else to_host(x.grad),
        drawn={device: torch.rand(4, device=device).cpu() for device in ("cuda", "cpu")},
        calls=[sum(each is block for each in run.noted) for block in model],
    )


def _as_pytorch(run: Run, expected: Afterwards) -> None:
    found: Afterwards = run.results
    require_close(found.loss, expected.loss, "The loss is wrong.")
    random = "Are the random numbers the same when the function runs again, on both devices?"
    hint = random if "dropout" in run.case else ""
    require_gradients(found.gradients, expected.gradients, hint=hint)
    if expected.input_gradient is not None:
        if found.input_gradient is None:
            raise NotFixed("The input of the first block has no gradient.")
        message = "The gradient of the first block's input is wrong."
        require_close(found.input_gradient, expected.input_gradient, message)
    for number, calls in enumerate(found.calls):
        if calls != 2:
            raise NotFixed(
                f"It fits, but block {number} was called {calls} times. A checkpoint calls its "
                "function once in the forward pass and once in the backward pass."
            )
    for device, drawn in expected.drawn.items():
        if not torch.equal(found.drawn[device], drawn):
            raise NotFixed(
                f"The gradients are right, but the random numbers drawn on {device!r} after the "
                "step differ from those without your checkpoint. Which state has to be restored "
                "after the function ran again?"
            )


def _checkpoint_of_pytorch(function: Any, *inputs: Any) -> Any:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(function, *inputs, use_reentrant=False)


def _plain(function: Any, *inputs: Any) -> Any:
    """No checkpoint at all."""
    return function(*inputs)


def _most_operators(own: Run) -> int:
    """As many as PyTorch's own checkpoints, and some more for each block."""
    return len(own.record.steps) + MORE_OPERATORS * int(own.case["blocks"])


PLAIN = Workshop(
    name="checkpoint",
    points=5,
    minutes=40,
    visible=({"blocks": 8, "input_gradient": True}, {"blocks": 6, "input_gradient": False}),
    hidden=lambda random: [
        {"blocks": random.randrange(7, 12), "input_gradient": random.random() < 0.5},
        {"blocks": random.randrange(4, 7), "input_gradient": False},
    ],
    steps="operators",
    without=("torch.utils.checkpoint",),
    trial=Building(
        gpu=BARE_T4,
        build=_chain,
        call=_step,
        reference=_checkpoint_of_pytorch,
        own_name="PyTorch",
        limit=lambda own: own.peak_bytes + ROOM_BYTES,
        most_steps=_most_operators,
        collect=_after_step,
        compare=_as_pytorch,
    ),
)


def _hidden_random(random: Random) -> list[Config]:
    return [
        {"blocks": random.randrange(4, 9), "dropout": random.randrange(1, 5) / 10} for _ in range(2)
    ]


RANDOM = Workshop(
    name="checkpoint_with_dropout",
    points=4,
    minutes=30,
    visible=({"blocks": 6, "dropout": 0.1}, {"blocks": 4, "dropout": 0.5}),
    hidden=_hidden_random,
    steps="operators",
    without=("torch.utils.checkpoint",),
    trial=Building(
        gpu=BARE_T4,
        build=_chain,
        call=_step_with_others,
        reference=_checkpoint_of_pytorch,
        own_name="PyTorch",
        limit=lambda own: own.peak_bytes + ROOM_BYTES,
        most_steps=_most_operators,
        collect=_after_step,
        compare=_as_pytorch,
    ),
)

EXERCISE = Exercise(name="workshop_b_checkpoint", module=__name__, tasks=(PLAIN, RANDOM))
