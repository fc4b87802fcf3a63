"""The documents' training loops as they are printed, and a way to see what they do to gradients.

    run = run_loop(LOOPS["002"], data)
    run.error                # None, or what Python says
    run.weights              # how much of each batch's gradient went into each optimizer step

A loop runs on a small model with real values. Its optimizer changes nothing, so that every batch
has one gradient, the same whenever it is computed. What the optimizer is given is then a sum of
those gradients, each with some weight; the weights say what a loop does, whatever is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vramlab.measure import Table

LOOPS = {
    "001": """\
accumulation_steps = 4
loss = 0

for i, (images, labels) in enumerate(train_data):
    outputs = model(imgaes)
    loss_now = criterion(outputs, labels)

    # loss_now regularization
    loss += loss_now / accumulation_steps

    loss.backward()

    # update parameters of net
    if ((i+1) % accumulation)==0:
        optimizer.step()
        optimizer.zero_grad()
        loss = 0
""",
    "003": """\
accumulation_steps = 4


for i, (images, labels) in enumerate(train_data):
    # 1. forwared
    outputs = model(imgaes)
    loss = criterion(outputs, labels)

    # 2.1 loss regularization
    loss += loss / accumulation_steps

    # 2.2 backward propagation
    loss.backward()

    # 3. update parameters of net
    if ((i+1) % accumulation)==0:
        # optimizer the net
        optimizer.step()
        optimizer.zero_grad() # reset grdient
""",
    "002 before": """\
for (inputs, labels) in data_loader:

    # extract inputs and labels
    inputs = inputs.to(device)
    labels = labels.to(device)

# passes and weights update
with torch.set_grad_enabled(True):

    # forward pass
    preds = model(inputs)
    loss = criterion(preds, labels)

    # backward pass
    loss.backward()

    # weights update
    optimizer.step()
    optimizer.zero_grad()
""",
    "002": """\
gradient_accumulation_steps = 4

# loop through batches
for batch_idx, (inputs, labels) in enumerate(data_loader):

    # extract inputs and labels
    inputs = inputs.to(device)
    labels = labels.to(device)

    # passes and weights update
    with torch.set_grad_enabled(True):

        # forward pass
        preds = model(inputs)
        loss = criterion(preds, labels)

        loss /= gradient_accumulation_steps

        # backward pass => compute gradient
        loss.backward()

        if ((batch_idx + 1) % gradient_accumulation_steps == 0) or ((batch_idx+1)
== len(data_loader)):
            # weights update
            optimizer.step()
            optimizer.zero_grad()
""",
}
"""Every line of code is the documents'; of their comments, the Chinese words are left out."""

Batches = Sequence[tuple[Tensor, Tensor]]
"""Inputs (batch, features) and targets (batch, outputs) on the GPU, one after the other."""


@dataclass(frozen=True)
class LoopRun:
    """What a loop did."""

    error: str | None
    """Such as "NameError: name 'imgaes' is not defined"; None if it ran to its end."""
    batches: int
    """How many there were."""
    weights: tuple[tuple[float, ...], ...]
    """For each optimizer step: how much of each batch's own gradient it was given."""
    peak_bytes: int
    """Peak of allocated memory while it ran."""
    left_over: bool
    """Whether gradients were still there at the end, for the next step."""

    def table(self, caption: str) -> Table:
        """Return the weights, a row for each optimizer step, and other findings."""
        rows = tuple(
            (f"step {number}", *(f"{weight:g}" for weight in weights))
            for number, weights in enumerate(self.weights, start=1)
        )
        notes = [] if self.weights else ["The optimizer was never asked to step."]
        if self.error:
            notes.append(self.error)
        if self.left_over:
            notes.append("Gradients are left over at the end.")
        header = ("weight of", *(f"batch {number}" for number in range(1, self.batches + 1)))
        return Table(caption, header, rows, tuple(notes))


class _Recorder(torch.optim.SGD):
    """Changes no parameter, and remembers every gradient that it was to apply."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), lr=0.0)
        self.model = model
        self.applied: list[Tensor] = []

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.applied.append(gradient_of(self.model))


def gradient_of(model: nn.Module) -> Tensor:
    """Return all gradients of a model as one vector; zeros where there are none."""
    return torch.cat(
        [
            (torch.zeros_like(p) if p.grad is None else p.grad).detach().flatten().double()
            for p in model.parameters()
        ]
    )


def small_data(batches: int, rows: int = 8, features: int = 16, seed: int = 0) -> Batches:
    """Draw random batches on the GPU that `small_model` can learn from, in float64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(columns: int) -> Tensor:
        numbers = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
        return numbers.to("cuda")

    return [(draw(features), draw(4)) for _ in range(batches)]


def small_model(features: int = 16, seed: int = 0) -> nn.Module:
    """Return a small network on the GPU, in float64: the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(features, 32), nn.Tanh(), nn.Linear(32, 4)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            shape = parameter.shape
            parameter.copy_(torch.randn(shape, generator=generator, dtype=torch.float64) / 4)
    return model.to("cuda")


def run_loop(source: str, batches: Batches, model: nn.Module | None = None) -> LoopRun:
    """Run a loop's text on a model, and find what its optimizer was given.

    The text finds what the documents take for granted: `model`, `criterion` (mean squared error),
    `optimizer`, `device`, `torch`, and the batches as `train_data` and `data_loader`.

    Args:
        source: the text of the loop.
        batches: at most as many as the model has parameters.
        model: `small_model()` if None. Gradients that it has stay; so a second call is an epoch.

    Raises:
        NoValuesError: the attached GPU computes no values.
    """
    model = small_model(batches[0][0].shape[1]) if model is None else model
    criterion = nn.MSELoss()
    recorder = _Recorder(model)
    names = {
        "torch": torch,
        "model": model,
        "criterion": criterion,
        "optimizer": recorder,
        "device": torch.device("cuda"),
        "train_data": batches,
        "data_loader": batches,
    }
    error = None
    torch.cuda.reset_peak_memory_stats()
    try:
        exec(compile(source, "<the document's loop>", "exec"), names)
    except (NameError, RuntimeError) as exception:
        error = f"{type(exception).__name__}: {_first_sentence(str(exception))}"
    peak_bytes = torch.cuda.max_memory_allocated()
    left_over = any(p.grad is not None and bool(p.grad.any()) for p in model.parameters())
    own = [_own_gradient(model, criterion, batch) for batch in batches]
    weights = tuple(_weights(applied, own) for applied in recorder.applied)
    return LoopRun(error, len(batches), weights, peak_bytes, left_over)


def _first_sentence(message: str) -> str:
    """Return the beginning of an error's message: up to the first full stop or parenthesis."""
    return message.split(". ")[0].split(" (")[0]


def _own_gradient(model: nn.Module, criterion: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the gradient of one batch alone; what is in `.grad` stays as it is."""
    inputs, targets = batch
    gradients = torch.autograd.grad(criterion(model(inputs), targets), list(model.parameters()))
    return torch.cat([gradient.flatten().double() for gradient in gradients])


def _weights(applied: Tensor, own: Sequence[Tensor]) -> tuple[float, ...]:
    """Return the numbers that `own` must be multiplied by to add up to `applied`, to nine digits.

    Raises:
        ValueError: no sum of them gives it.
    """
    columns = torch.stack([gradient.cpu() for gradient in own], dim=1)
    target = applied.cpu().unsqueeze(1)
    solution = torch.linalg.lstsq(columns, target).solution
    if not torch.allclose(columns @ solution, target, rtol=1e-9, atol=1e-9):
        raise ValueError("the applied gradient is no sum of the batches' own gradients")
    return tuple(round(float(weight), 9) + 0.0 for weight in solution.flatten())
