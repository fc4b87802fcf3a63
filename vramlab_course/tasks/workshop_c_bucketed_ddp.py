"""Workshop C: gradients in buckets, averaged over ranks while backward runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from vramlab.units import KIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import Config, Exercise, NotFixed, Workshop
from vramlab_course.tasks.gradients import require_gradients
from vramlab_course.tasks.rank_by_rank import of_ranks
from vramlab_course.tasks.repair import Run
from vramlab_course.tasks.results import is_plain, named_parameters_of, to_host

RANKS = 2
ROWS = 32
ROOM_BYTES = 16 * KIB
SAME = 1e-4


@dataclass
class Traffic:
    """What the ranks send, by the order in which they send it."""

    sent: list[list[torch.Tensor]] = field(default_factory=lambda: [[] for _ in range(RANKS)])
    """The tensors of each rank, until they are added up."""

    sizes_bytes: list[int] = field(default_factory=list)
    """Of the all-reduces of rank 0."""

    rank: int = 0
    """Whose program runs."""

    is_backward: bool = False


@dataclass(frozen=True)
class Averaged:
    """The gradients of each rank after a step, and what went around."""

    gradients: Sequence[dict[str, torch.Tensor]]
    traffic: Traffic
    ticks: tuple[int, int]
    """From when to when rank 0 ran."""


def _model(widths: Sequence[int]) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers)


def _ranks(run: Run, widths: Sequence[int], bucket_kib: int) -> list[Any]:
    """Give each rank a model with the same weights, and rows of its own."""
    inputs: list[Any] = []
    for rank in range(RANKS):
        torch.manual_seed(len(widths))
        model = _model(widths).to(f"cuda:{rank}")
        torch.manual_seed(1000 + rank)
        inputs += [model, torch.randn(ROWS, widths[0]).to(f"cuda:{rank}")]
    return inputs


def _all_reduce(run: Run, traffic: Traffic, most_bytes: int) -> Callable[[Any], None]:
    rank = traffic.rank

    def all_reduce(tensor: Any) -> None:
        if not is_plain(tensor) or not tensor.is_cuda or not tensor.is_contiguous():
            raise NotFixed("all_reduce() takes one contiguous tensor on the rank's own GPU.")
        size_bytes = tensor.numel() * tensor.element_size()
        if not traffic.is_backward:
            raise NotFixed(
                f"It sends {format_bytes(size_bytes)} when backward does not run. Everybody would "
                "wait for that. When is a bucket full?"
            )
        if size_bytes > most_bytes:
            raise NotFixed(
                f"It sends {format_bytes(size_bytes)} at once; a bucket, or the largest parameter, "
                f"has {format_bytes(most_bytes)} at most."
            )
        with run.record.marking("all-reduce", rank), run.work.counting(False):
            run.note_given([tensor])
            traffic.sent[rank].append(tensor)
        if rank == 0:
            traffic.sizes_bytes.append(size_bytes)

    return all_reduce


def _add_up(run: Run, traffic: Traffic) -> None:
    """Do what the network would have done meanwhile."""
    first, *others = traffic.sent
    for other in others:
        if [tensor.shape for tensor in other] != [tensor.shape for tensor in first]:
            raise NotFixed("The ranks send different tensors, or in another order.")
    run.require_intact()
    with run.work.counting(False), torch.no_grad():
        for tensors in zip(*traffic.sent, strict=True):
            total = torch.stack([tensor.detach().cpu() for tensor in tensors]).sum(0)
            for tensor in tensors:
                tensor.detach().copy_(total)
    traffic.sent = [[] for _ in range(RANKS)]


def _step(run: Run) -> Averaged:
    """Run a step of each rank, rank 0 last; then add up, and let each finish, rank 0 first."""
    traffic = Traffic()
    models = run.inputs[::2]
    largest = max(p.numel() * p.element_size() for p in models[0].parameters())
    bucket_bytes = run.case["bucket_kib"] * KIB
    finishing = []
    start = 0
    for rank in reversed(range(RANKS)):
        model, x = run.inputs[2 * rank : 2 * rank + 2]
        traffic.rank, start = rank, run.record.now
        all_reduce = _all_reduce(run, traffic, max(bucket_bytes, largest))
        finish = run.program(list(model.parameters()), all_reduce, RANKS, bucket_bytes)
        if not callable(finish):
            raise NotFixed(f"It has to return a function; it returns a {type(finish).__name__}.")
        finishing.append(finish)
        loss = model(x).square().mean()
        traffic.is_backward = True
        loss.backward()
        traffic.is_backward = False
        del loss
    _add_up(run, traffic)
    finishing.pop()()
    ticks = (start, run.record.now)
    for finish in finishing:
        finish()
    gradients = [
        {name: to_host(p.grad) for name, p in named_parameters_of(model) if p.grad is not None}
        for model in models
    ]
    return Averaged(gradients, traffic, ticks)


def _bucketed(
    parameters: Sequence[Any], all_reduce: Callable[[Any], None], ranks: int, bucket_bytes: int
) -> Callable[[], None]:
    """As PyTorch's DDP does by default: gradients are copied into buckets, and back."""
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

        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(ready)

    for bucket in buckets:
        watch_over(bucket)

    def finish() -> None:
        for bucket, flat in sent:
            flat /= ranks
            parts = flat.split([each.numel() for each in bucket])
            for parameter, part in zip(bucket, parts, strict=True):
                parameter.grad.copy_(part.view_as(parameter))
        sent.clear()

    return finish


def _same_gradients(run: Run, expected: Averaged) -> None:
    found: Averaged = run.results
    for rank, (own, wanted) in enumerate(zip(found.gradients, expected.gradients, strict=True)):
        try:
            require_gradients(own, wanted, SAME)
        except NotFixed as error:
            raise NotFixed(
                f"{error} That was rank {rank}; both should have the mean over all ranks."
            ) from error
    total_bytes, sent_bytes = (sum(each.traffic.sizes_bytes) for each in (expected, found))
    if sent_bytes > total_bytes:
        raise NotFixed(
            f"The gradients are right, but a rank sends {format_bytes(sent_bytes)}; its gradients "
            f"have {format_bytes(total_bytes)}."
        )


def _all_reduces(run: Run) -> int:
    return len(run.results.traffic.sizes_bytes)


VISIBLE: tuple[Config, ...] = (
    {"widths": [64, 128, 256, 128, 256, 64], "bucket_kib": 160},
    {"widths": [32, 256, 384, 64, 64, 64, 64], "bucket_kib": 64},
)


def _hidden(random: Random) -> list[Config]:
    return [
        {
            "widths": [32 * random.randrange(1, 9) for _ in range(random.randrange(5, 9))],
            "bucket_kib": 32 * random.randrange(2, 6),
        }
        for _ in range(2)
    ]


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
        ROOM_BYTES,
        _all_reduces,
        build=_ranks,
        call=_step,
        reference=_bucketed,
        steps_name="all-reduces",
        question="Which gradients could travel together?",
        compare=_same_gradients,
    ),
)

EXERCISE = Exercise(name="workshop_c_bucketed_ddp", module=__name__, tasks=(DDP,))
