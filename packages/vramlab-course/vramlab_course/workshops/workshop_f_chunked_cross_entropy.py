"""Workshop F: a cross-entropy whose logits are never there all at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from vramlab.units import MIB
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import Config, Exercise, NotFixed, Workshop
from vramlab_course.tasks.building import BARE_T4, Building
from vramlab_course.tasks.repair import Run
from vramlab_course.tasks.results import on_host, require_close

WIDTH = 64
IGNORED = -100
"""PyTorch's own `ignore_index`: a target that counts for nothing."""

TARGET_ROWS = 128
"""The target has room for the logits of so many tokens."""

ROOM_BYTES = MIB // 2
"""And for what is small: sums of rows, gradients of a piece."""

OPERATORS_PER_PIECE = 30
"""Of `TARGET_ROWS / 2` tokens each: enough for one way of going backward, not for two."""

SAME = 1e-4


def _batch(run: Run, tokens: int, words: int, ignored: int = 0) -> tuple[torch.Tensor, ...]:
    """Make what comes before the loss: the last layer's output, the head's weight, the targets."""
    generator = torch.Generator().manual_seed(tokens + words)
    x = torch.randn(tokens, WIDTH, generator=generator)
    weight = torch.randn(words, WIDTH, generator=generator) / 8
    x[-1] *= 30  # logits that exp() cannot take
    targets = torch.randint(words, (tokens,), generator=generator)
    targets[::50] = 0  # a word like any other
    # Not evenly: a piece of the batch has more of them than another.
    targets[tokens // 3 : tokens // 3 + ignored] = IGNORED
    return x.to("cuda"), weight.to("cuda"), targets.to("cuda")


def _trainable(run: Run, **case: int) -> tuple[torch.Tensor, ...]:
    x, weight, targets = _batch(run, **case)
    return x.requires_grad_(), weight.requires_grad_(), targets


def _whole(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """All logits at once."""
    return torch.nn.functional.cross_entropy(x @ weight.T, targets)


def _pieces(tokens: int, rows: int = TARGET_ROWS // 2) -> list[slice]:
    return [slice(start, start + rows) for start in range(0, tokens, rows)]


def _sum_in_pieces(
    x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, rows: int = TARGET_ROWS // 2
) -> torch.Tensor:
    total = x.new_zeros(())
    for piece in _pieces(len(x), rows):
        logits = x[piece] @ weight.T
        total += torch.nn.functional.cross_entropy(logits, targets[piece], reduction="sum")
        del logits
    return total / (targets != IGNORED).sum()


def _loss_in_pieces(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Gradients are made in forward, where the probabilities are: for the targets' sizes."""

    class InPieces(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, weight: Any, targets: Any) -> Any:
            count = (targets != IGNORED).sum()
            total, of_x, of_weight = x.new_zeros(()), torch.empty_like(x), torch.zeros_like(weight)
            for piece in _pieces(len(x)):
                counts = targets[piece] != IGNORED
                words = targets[piece].clamp(min=0).unsqueeze(1)
                scores = x[piece] @ weight.T
                scores -= scores.amax(1, keepdim=True)
                right = scores.gather(1, words)
                scores.exp_()
                sums = scores.sum(1, keepdim=True)
                total += ((sums.log() - right).squeeze(1) * counts).sum()
                scores /= sums
                scores.scatter_add_(1, words, -torch.ones_like(right))
                scores *= counts.unsqueeze(1) / count
                torch.mm(scores, weight, out=of_x[piece])
                of_weight.addmm_(scores.T, x[piece])
                del scores
            ctx.save_for_backward(of_x, of_weight)
            return total / count

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            of_x, of_weight = ctx.saved_tensors
            return of_x.mul_(gradients[0]), of_weight.mul_(gradients[0]), None

    loss: torch.Tensor = InPieces.apply(x, weight, targets)  # type: ignore[no-untyped-call]
    return loss


def _loss_alone(run: Run) -> object:
    with torch.no_grad():
        return run.program(*run.inputs)


def _loss_on_host(run: Run, returned: object) -> torch.Tensor:
    return on_host(returned, "It has to return the loss: a tensor with one number, on the GPU.")


def _same_loss(run: Run, expected: torch.Tensor) -> None:
    _require_loss(run, run.results, expected, "It fits, but the loss is wrong.")


def _require_loss(run: Run, found: torch.Tensor, expected: torch.Tensor, message: str) -> None:
    """Require the loss, and name the way of taking the mean by which it may be another."""
    tokens, ignored = run.case["tokens"], run.case["ignored"]
    times = float(found.sum() / expected)
    if math.isnan(times):
        why = "Is every token of some chunk ignored? Its mean is 0 / 0."
    elif math.isclose(times, tokens - ignored, rel_tol=SAME):
        why = "It is the sum over the tokens."
    elif math.isclose(times, (tokens - ignored) / tokens, rel_tol=SAME):
        why = "It is divided by all tokens, but ignored tokens do not count."
    else:
        why = "If it is a mean of means: does every chunk count equally many tokens?"
    require_close(found, expected, f"{message} {why}")


def _scale(run: Run) -> float:
    """Return what a case's loss is multiplied with, so that a gradient arrives which is not 1."""
    return 1.5 + float((run.case["tokens"] + run.case["words"] // 1024) % 23) / 8


def _forward_and_backward(run: Run) -> object:
    loss = run.program(*run.inputs)
    on_host(loss, "It has to return the loss: a tensor with one number, on the GPU.")
    if not loss.requires_grad:
        raise NotFixed("The loss has no graph, so backward() cannot go on from it to x and weight.")
    if loss.numel() != 1:
        raise NotFixed(f"It returns a tensor of shape {tuple(loss.shape)}, not one number.")
    (loss * _scale(run)).backward()
    return loss.detach()


@dataclass(frozen=True)
class LossAndGradients:
    """What came out, on the host."""

    loss: torch.Tensor
    gradients: Sequence[torch.Tensor]
    """Of the tokens, and of the weight."""


def _with_gradients(run: Run, returned: object) -> LossAndGradients:
    gradients = [
        on_host(tensor.grad, f"After backward(), {name} has no gradient.")
        for name, tensor in zip(("x", "weight"), run.inputs, strict=False)
    ]
    return LossAndGradients(_loss_on_host(run, returned), gradients)


def _same_gradients(run: Run, expected: LossAndGradients) -> None:
    _require_loss(run, run.results.loss, expected.loss, "The loss is wrong.")
    for name, found, wanted in zip(
        ("x", "weight"), run.results.gradients, expected.gradients, strict=True
    ):
        times = float((found * wanted).sum() / wanted.square().sum())
        hint = "" if abs(times - 1) < SAME else f" It is about {times:.3f} times as large."
        message = f"The loss is right, but the gradient of {name} is wrong.{hint}"
        require_close(found, wanted, message)


def _room(gradients: bool) -> Callable[[Run], int]:
    """Return the target: inputs, gradients if there are, and the logits of some tokens."""

    def target_bytes(own: Run) -> int:
        tokens, words = own.case["tokens"], own.case["words"]
        floats = (tokens + words) * WIDTH * (2 if gradients else 1) + TARGET_ROWS * words
        return int(4 * floats + 8 * tokens + ROOM_BYTES)

    return target_bytes


def _most_operators(per_piece: int) -> Callable[[Run], int]:
    return lambda run: per_piece * len(_pieces(run.case["tokens"]))


def _hidden(random: Random) -> list[Config]:
    tokens = 8 * random.randrange(50, 64) + random.randrange(1, 8)
    return [
        {"tokens": tokens, "words": 1024 * random.randrange(4, 8), "ignored": 0},
        {"tokens": tokens - 32, "words": 4096, "ignored": random.randrange(50, 150)},
    ]


VISIBLE: tuple[Config, ...] = (
    {"tokens": 512, "words": 8192, "ignored": 0},
    {"tokens": 500, "words": 4096, "ignored": 100},
)

MEAN = Workshop(
    name="mean_loss",
    points=3,
    minutes=20,
    visible=VISIBLE,
    hidden=_hidden,
    steps="operators",
    trial=Building(
        gpu=BARE_T4,
        build=_batch,
        call=_loss_alone,
        reference=_whole,
        fits=_sum_in_pieces,
        pytorch=_whole,
        best=partial(_sum_in_pieces, rows=TARGET_ROWS // 4),
        limit=_room(gradients=False),
        most_steps=_most_operators(10),
        collect=_loss_on_host,
        compare=_same_loss,
    ),
)

LOSS = Workshop(
    name="chunked_loss",
    points=6,
    minutes=45,
    visible=VISIBLE,
    hidden=_hidden,
    steps="operators",
    trial=Building(
        gpu=BARE_T4,
        build=_trainable,
        call=_forward_and_backward,
        reference=_whole,
        fits=_loss_in_pieces,
        pytorch=_whole,
        limit=_room(gradients=True),
        most_steps=_most_operators(OPERATORS_PER_PIECE),
        collect=_with_gradients,
        compare=_same_gradients,
    ),
)

EXERCISE = Exercise(
    name="workshop_f_chunked_cross_entropy",
    module=__name__,
    tasks=(MEAN, LOSS),
)
