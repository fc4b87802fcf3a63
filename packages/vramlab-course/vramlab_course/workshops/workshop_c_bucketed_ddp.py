"""Workshop C: gradients in buckets, averaged over ranks while backward runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

from vramlab.units import KIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import Config, Exercise, NotFixed, Workshop
from vramlab_course.tasks.gradients import require_gradients
from vramlab_course.tasks.rank_network import Link
from vramlab_course.tasks.ranks import of_ranks
from vramlab_course.tasks.repair import MOST_FLOPS, Run
from vramlab_course.tasks.results import is_plain, named_parameters_of, to_host

RANKS = 2
ROWS = 32
ROOM_BYTES = 16 * KIB


ALL_REDUCE = "all-reduce"

Gradients = dict[str, "torch.Tensor"]
"""Of one rank, by the names of the parameters, on the host."""


def _model(widths: Sequence[int]) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers)


def _model_and_rows(run: Run, rank: int, widths: Sequence[int], bucket_kib: int) -> tuple[Any, ...]:
    """Give a rank a model with the same weights as all, and rows of its own."""
    torch.manual_seed(len(widths))
    model = _model(widths).to(f"cuda:{rank}")
    torch.manual_seed(1000 + rank)
    return model, torch.randn(ROWS, widths[0]).to(f"cuda:{rank}")


def _gradients_bytes(run: Run) -> int:
    """Add up the gradients of a rank."""
    return sum(4 * outputs * (inputs + 1) for inputs, outputs in pairwise(run.case["widths"]))


@dataclass
class AllReduces:
    """What a rank sends in a step."""

    run: Run
    link: Link
    most_bytes: int
    """At once."""

    most_waiting_bytes: int
    """Of gradients, when a bucket is sent: it was full at the latest when the next one came."""

    is_backward: bool = False
    waiting_bytes: int = 0
    """Of gradients that are there, less what was sent."""

    sent: list[torch.Tensor] = field(default_factory=list)
    """The tensors that its sums will be in."""

    def note_gradient(self, parameter: torch.Tensor) -> None:
        """Note that the gradient of a parameter is there."""
        self.waiting_bytes += parameter.nbytes

    def all_reduce(self, tensor: Any) -> None:
        """Issue an all-reduce: the function that a program is given."""
        if not is_plain(tensor) or not tensor.is_cuda or not tensor.is_contiguous():
            raise NotFixed("all_reduce() takes one contiguous tensor on the rank's own GPU.")
        size_bytes = tensor.numel() * tensor.element_size()
        if not self.is_backward:
            raise NotFixed(
                f"It sends {format_bytes(size_bytes)} when the backward pass is not running, so "
                "every rank would wait for it. When is a bucket full?"
            )
        if size_bytes > self.most_bytes:
            raise NotFixed(
                f"It sends {format_bytes(size_bytes)} in one collective; a bucket, or the largest "
                f"parameter, has at most {format_bytes(self.most_bytes)}."
            )
        if self.waiting_bytes > self.most_waiting_bytes:
            raise NotFixed(
                f"It sends {format_bytes(size_bytes)} only when {format_bytes(self.waiting_bytes)} "
                "of gradients wait, which is more than one bucket. The network was idle meanwhile. "
                "Which gradient was the last that this bucket needed?"
            )
        self.waiting_bytes -= 4 * tensor.numel()  # whatever dtype it is sent in
        with self.run.record.marking(ALL_REDUCE, self.link.rank), self.run.work.pausing():
            self.run.note_given([tensor])
            self.link.post(ALL_REDUCE, tensor)
        self.sent.append(tensor)

    def wait(self) -> None:
        """Put the sums where they belong."""
        self.run.require_intact()
        with self.run.work.pausing(), torch.no_grad():
            for tensor in self.sent:
                total = torch.stack(self.link.receive()).sum(0)
                tensor.detach().copy_(total)
        self.sent.clear()


def _step(run: Run, link: Link, model: torch.nn.Module, x: torch.Tensor) -> Gradients:
    """Run a step of a rank."""
    parameters = list(model.parameters())
    bucket_bytes = int(run.case["bucket_kib"] * KIB)
    largest = max(each.numel() * each.element_size() for each in parameters)
    most_bytes = max(bucket_bytes, largest)
    network = AllReduces(run, link, most_bytes, most_bytes + largest)
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(network.note_gradient)
    finish = run.program(parameters, network.all_reduce, RANKS, bucket_bytes)
    if not callable(finish):
        raise NotFixed(f"It has to return a function; it returns a {type(finish).__name__}.")
    loss = model(x).square().mean()
    network.is_backward = True
    loss.backward()
    network.is_backward = False
    del loss
    network.wait()
    finish()
    named = named_parameters_of(model)
    with run.work.pausing():
        return {name: to_host(p.grad) for name, p in named if p.grad is not None}


def _bucketed(
    parameters: Sequence[Any],
    all_reduce: Callable[[Any], None],
    ranks: int,
    bucket_bytes: int,
    *,
    as_views: bool = False,
) -> Callable[[], None]:
    """Do as PyTorch's DDP: gradients are copied into buckets and back, or become views of them."""
    buckets: list[list[Any]] = [[]]
    for parameter in reversed(parameters):
        held = sum(each.nbytes for each in buckets[-1])
        if buckets[-1] and held + parameter.nbytes > bucket_bytes:
            buckets.append([])
        buckets[-1].append(parameter)
    sent: list[tuple[list[Any], torch.Tensor]] = []

    def watch_over(bucket: list[Any]) -> None:
        waiting = {id(each) for each in bucket}

        def ready(parameter: Any) -> None:
            waiting.discard(id(parameter))
            if not waiting:
                flat = torch.cat([each.grad.flatten() for each in bucket])
                all_reduce(flat)
                sent.append((bucket, flat))
                for each in bucket if as_views else ():
                    each.grad = None

        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(ready)

    for bucket in buckets:
        watch_over(bucket)

    def finish() -> None:
        for bucket, flat in sent:
            flat /= ranks
            parts = flat.split([each.numel() for each in bucket])
            for parameter, part in zip(bucket, parts, strict=True):
                if as_views:
                    parameter.grad = part.view_as(parameter)
                else:
                    parameter.grad.copy_(part.view_as(parameter))
        sent.clear()

    return finish


_bucketed_as_views = partial(_bucketed, as_views=True)


def _same_gradients(run: Run, expected: Sequence[Gradients]) -> None:
    for rank, (own, wanted) in enumerate(zip(run.results, expected, strict=True)):
        try:
            require_gradients(own, wanted)
        except NotFixed as error:
            raise NotFixed(
                f"{error} That was rank {rank}; both ranks need the mean over all ranks."
            ) from error
    total_bytes = _gradients_bytes(run)
    sent_bytes = max(sum(message.size_bytes for message in messages) for messages in run.sent)
    if sent_bytes > total_bytes:
        raise NotFixed(
            f"The gradients are right, but a rank sends {format_bytes(sent_bytes)}; its gradients "
            f"have {format_bytes(total_bytes)}."
        )


VISIBLE: tuple[Config, ...] = (
    {"widths": [64, 128, 256, 128, 256, 64], "bucket_kib": 160},
    {"widths": [32, 256, 384, 64, 64, 64, 64], "bucket_kib": 64},
)


def _hidden(random: Random) -> list[Config]:
    exactly_full = {"widths": [64] * random.randrange(5, 9), "bucket_kib": 2 * (64 + 1) / 4}
    cases: list[Config] = [
        {
            "widths": [32 * random.randrange(1, 9) for _ in range(random.randrange(5, 9))],
            "bucket_kib": 32 * random.randrange(2, 6),
        }
        for _ in range(2)
    ]
    return [*cases, exactly_full]


DDP = Workshop(
    name="bucketed_ddp",
    points=8,
    minutes=60,
    visible=VISIBLE,
    hidden=_hidden,
    steps="all-reduces",
    without=("torch.nn.parallel",),
    trial=of_ranks(
        RANKS,
        build=_model_and_rows,
        step=_step,
        room_bytes=ROOM_BYTES,
        least_sent=lambda run: {ALL_REDUCE: (_gradients_bytes(run), "its gradients have")},
        most_flops=MOST_FLOPS,
        reference=_bucketed,
        best=_bucketed_as_views,
        steps_name="all-reduces",
        question="Which gradients could share a bucket?",
        compare=_same_gradients,
    ),
)

EXERCISE = Exercise(name="workshop_c_bucketed_ddp", module=__name__, tasks=(DDP,))
