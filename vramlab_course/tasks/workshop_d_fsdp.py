"""Workshop D: a training step of FSDP, with a layer's weight there only while it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import Config, Exercise, NotFixed, Workshop
from vramlab_course.tasks.rank_by_rank import of_ranks
from vramlab_course.tasks.repair import Run
from vramlab_course.tasks.results import is_plain, items, on_host, require_close

RANKS = 4
WIDTH = 256
ROWS = 64
ROOM_BYTES = 4 * WIDTH * WIDTH
"""A layer's weight: autograd's way of a layer holds more at a time than doing it by hand."""

SAME = 1e-4

GATHER, REDUCE_SCATTER = "all-gather", "reduce-scatter"

Tensors = Sequence[Any]


@dataclass
class Reduced:
    """A gradient of one rank that was given to reduce-scatter."""

    whole: torch.Tensor
    """(WIDTH, WIDTH), on the host."""

    shard: torch.Tensor
    """(WIDTH / RANKS, WIDTH): where the rank's part of the mean goes, on its GPU."""


@dataclass(frozen=True)
class Sharded:
    """The gradients that ranks have at the end, and what they have sent."""

    gradients: list[list[torch.Tensor]]
    """Of each rank and layer, on the host."""

    collectives: int
    """Of rank 0."""

    ticks: tuple[int, int]
    """From when to when rank 0 ran."""


@dataclass
class ShardExchange:
    """What connects the ranks: weights are known to all, and gradients are added up at the end."""

    run: Run
    shards: list[list[torch.Tensor]]
    """Of each rank and layer, on the ranks' GPUs."""

    weights: list[torch.Tensor]
    """Of each layer, on the host."""

    reduced: list[list[Reduced]] = field(default_factory=lambda: [[] for _ in range(RANKS)])
    calls: list[int] = field(default_factory=lambda: [0] * RANKS)

    def all_gather(self, rank: int) -> Callable[[Any], torch.Tensor]:
        """Give a rank the function that makes a whole weight of its shard."""

        def all_gather(shard: Any) -> torch.Tensor:
            found = [layer for layer, own in enumerate(self.shards[rank]) if own is shard]
            if not found:
                raise NotFixed("all_gather() takes one of the shards that the rank was given.")
            with self._collective(GATHER, rank):
                weight = self.weights[found[0]].to(f"cuda:{rank}")
                for block in self.run.record.blocks[-1:]:
                    block.name = "gathered weight"
                return weight

        return all_gather

    def reduce_scatter(self, rank: int) -> Callable[[Any], torch.Tensor]:
        """Give a rank the function that adds a gradient up over ranks, and gives its part."""

        def reduce_scatter(gradient: Any) -> torch.Tensor:
            if not is_plain(gradient) or gradient.shape != (WIDTH, WIDTH) or not gradient.is_cuda:
                raise NotFixed(
                    f"reduce_scatter() takes the gradient of a whole weight, ({WIDTH}, {WIDTH}), "
                    "on the rank's own GPU."
                )
            with self._collective(REDUCE_SCATTER, rank):
                shard = torch.empty(WIDTH // RANKS, WIDTH, device=f"cuda:{rank}")
                for block in self.run.record.blocks[-1:]:
                    block.name = "gradient of a shard"
                self.reduced[rank].append(Reduced(gradient.detach().cpu(), shard))
                self.run.note_given([shard])
            return shard

        return reduce_scatter

    def finish(self) -> None:
        """Give all ranks their parts of the means."""
        if len({len(each) for each in self.reduced}) > 1:
            raise NotFixed("The ranks call reduce_scatter() more or less often than each other.")
        self.run.require_intact()
        with self.run.work.counting(False):
            for of_layer in zip(*self.reduced, strict=True):
                mean = torch.stack([each.whole for each in of_layer]).mean(0)
                for each, part in zip(of_layer, mean.chunk(RANKS), strict=True):
                    each.shard.copy_(part)

    @contextmanager
    def _collective(self, name: str, rank: int) -> Iterator[None]:
        self.calls[rank] += 1
        self.run.require_intact()
        with self.run.record.marking(name, rank), self.run.work.counting(False):
            yield


def _ranks(run: Run, layers: int) -> list[Any]:
    """Give each rank its shards, and rows of its own; and the whole weights, on the host."""
    generator = torch.Generator().manual_seed(layers)
    weights = [torch.randn(WIDTH, WIDTH, generator=generator) / 16 for _ in range(layers)]
    shards, rows = [], []
    for rank in range(RANKS):
        shards.append([each.chunk(RANKS)[rank].to(f"cuda:{rank}") for each in weights])
        rows.append(torch.randn(ROWS, WIDTH, generator=generator).to(f"cuda:{rank}"))
        run.note_given([*shards[-1], rows[-1]])
    return [shards, rows, weights]


def _step(run: Run) -> Sharded:
    """Run a step of each rank, rank 0 last."""
    shards, rows, weights = run.inputs
    collectives = ShardExchange(run, shards, weights)
    returned: list[Any] = [None] * RANKS
    start = 0
    for rank in reversed(range(RANKS)):
        start = run.record.now
        returned[rank] = run.program(
            list(shards[rank]),
            rows[rank],
            collectives.all_gather(rank),
            collectives.reduce_scatter(rank),
        )
        run.require_intact()
    ticks = (start, run.record.now)
    collectives.finish()
    what = "a list with the gradient of each shard"
    gradients = []
    for rank, each in enumerate(returned):
        found = items(each, len(weights), what)
        gradients.append([on_host(one, f"It has to return {what}.") for one in found])
        for one in gradients[rank]:
            if one.shape != (WIDTH // RANKS, WIDTH):
                raise NotFixed(
                    f"A gradient has the shape {tuple(one.shape)}; a shard has "
                    f"{(WIDTH // RANKS, WIDTH)}. What does reduce_scatter() give?"
                )
    return Sharded(gradients, collectives.calls[0], ticks)


def _gathered_for_each_layer(
    shards: Tensors, x: Any, all_gather: Callable[..., Any], reduce_scatter: Callable[..., Any]
) -> list[Any]:
    """As FSDP does: a weight is gathered for forward, given back, and gathered again."""
    outputs = [x]
    for shard in shards:
        weight = all_gather(shard)
        outputs.append(torch.tanh(outputs[-1] @ weight))
        del weight
    y = outputs.pop()
    gradient = 2 * y / y.numel()
    gradients: list[Any] = []
    for shard in reversed(shards):
        x = outputs.pop()
        gradient = gradient * (1 - y * y)
        weight = all_gather(shard)
        of_x = gradient @ weight.T
        del weight
        gradients.insert(0, reduce_scatter(x.T @ gradient))
        y, gradient = x, of_x
    return gradients


def _same_gradients(run: Run, expected: Sharded) -> None:
    if _are_backwards(run.results.gradients[0], expected.gradients[0]):
        raise NotFixed(
            "The gradients are right, and in the wrong order: yours go from the last layer to the "
            "first. The list of shards goes from the first to the last."
        )
    for rank, (own, wanted) in enumerate(
        zip(run.results.gradients, expected.gradients, strict=True)
    ):
        for layer, (found, right) in enumerate(zip(own, wanted, strict=True)):
            message = (
                f"The gradient of layer {layer}'s shard on rank {rank} is another than that of the "
                "mean over all ranks."
            )
            most = float(right.abs().max())
            require_close(found, right, message, rtol=SAME, atol=SAME * most)


def _are_backwards(found: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(right) > 1 and all(
        torch.allclose(one, other, rtol=SAME, atol=SAME * float(other.abs().max()))
        for one, other in zip(reversed(found), right, strict=True)
    )


def _collectives(run: Run) -> int:
    return int(run.results.collectives)


VISIBLE: tuple[Config, ...] = ({"layers": 8}, {"layers": 5})


def _hidden(random: Random) -> list[Config]:
    return [{"layers": random.randrange(6, 11)}, {"layers": random.randrange(2, 5)}]


FSDP = Workshop(
    name="fsdp_step",
    points=8,
    minutes=60,
    visible=VISIBLE,
    hidden=_hidden,
    steps="collectives",
    without=("torch.distributed.fsdp",),
    trial=of_ranks(
        RANKS,
        ROOM_BYTES,
        _collectives,
        build=_ranks,
        call=_step,
        reference=_gathered_for_each_layer,
        steps_name="collectives",
        question="Which weight is gathered more often than twice?",
        compare=_same_gradients,
    ),
)

EXERCISE = Exercise(name="workshop_d_fsdp", module=__name__, tasks=(FSDP,))
