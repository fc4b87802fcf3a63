"""Workshop D: a training step of FSDP, with a layer's weight there only while it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import Config, Exercise, NotFixed, Workshop
from vramlab_course.tasks.rank_network import Link
from vramlab_course.tasks.ranks import of_ranks
from vramlab_course.tasks.repair import Run
from vramlab_course.tasks.results import is_plain, items, on_host, require_close

RANKS = 4
WIDTH = 256
ROWS = 64
ROOM_BYTES = 4 * WIDTH * WIDTH
"""A layer's weight: autograd's way of a layer holds more at a time than doing it by hand."""

SAME = 1e-4

MOST_FLOPS = 1.5
"""Times our own: layers may run again in backward, which takes 8 products instead of 6."""

GATHER, REDUCE_SCATTER = "all-gather", "reduce-scatter"

Tensors = Sequence[Any]


@dataclass
class RankCollectives:
    """What connects a rank with the others."""

    run: Run
    link: Link
    shards: Tensors
    """The rank's, of each layer."""

    def all_gather(self, shard: Any) -> torch.Tensor:
        """Make a whole weight of all ranks' shards."""
        # Autograd returns saved tensors as new Python objects with the same memory.
        given = shard.data_ptr() if is_plain(shard) and shard.shape == self.shards[0].shape else 0
        if given not in [own.data_ptr() for own in self.shards]:
            raise NotFixed("all_gather() takes one of this rank's shards.")
        with self._collective(GATHER, shard) as parts:
            weight = torch.cat(parts).to(shard.device)
            self._name_block("gathered weight")
        return weight

    def reduce_scatter(self, gradient: Any) -> torch.Tensor:
        """Return the rank's part of the mean of a gradient over all ranks."""
        if not is_plain(gradient) or gradient.shape != (WIDTH, WIDTH) or not gradient.is_cuda:
            raise NotFixed(
                f"reduce_scatter() takes the gradient of a whole weight, ({WIDTH}, {WIDTH}), "
                "on the rank's own GPU."
            )
        with self._collective(REDUCE_SCATTER, gradient) as parts:
            mean = torch.stack(parts).mean(0)
            shard = mean.chunk(RANKS)[self.link.rank].to(gradient.device)
            self._name_block("gradient of a shard")
        return shard

    @contextmanager
    def _collective(self, name: str, tensor: torch.Tensor) -> Iterator[list[torch.Tensor]]:
        """Send a tensor, and give what all ranks have sent."""
        self.run.require_intact()
        run = self.run
        with run.record.marking(name, self.link.rank), run.work.pausing(), torch.no_grad():
            self.link.post(name, tensor)
            yield self.link.receive()

    def _name_block(self, name: str) -> None:
        for block in self.run.record.blocks[-1:]:
            block.name = name


def _shards_and_rows(run: Run, rank: int, layers: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Give a rank its shards, and rows of its own."""
    generator = torch.Generator().manual_seed(layers)
    weights = [torch.randn(WIDTH, WIDTH, generator=generator) / 16 for _ in range(layers)]
    rows = torch.randn(RANKS, ROWS, WIDTH, generator=generator)
    shards = [each.chunk(RANKS)[rank].to(f"cuda:{rank}") for each in weights]
    run.note_given(shards)
    return shards, rows[rank].to(f"cuda:{rank}")


def _step(run: Run, link: Link, shards: Tensors, x: torch.Tensor) -> list[torch.Tensor]:
    """Run a step of a rank; give the gradients of its shards, on the host."""
    collectives = RankCollectives(run, link, shards)
    returned = run.program(list(shards), x, collectives.all_gather, collectives.reduce_scatter)
    run.require_intact()
    what = "a list with the gradient of each shard"
    found = items(returned, len(shards), what)
    with run.work.pausing():
        gradients = [on_host(one, f"It has to return {what}.") for one in found]
    for one in gradients:
        if one.shape != (WIDTH // RANKS, WIDTH):
            raise NotFixed(
                f"A gradient has the shape {tuple(one.shape)}; a shard has "
                f"{(WIDTH // RANKS, WIDTH)}. What does reduce_scatter() return?"
            )
    return gradients


def _gathered_for_each_layer(
    shards: Tensors,
    x: Any,
    all_gather: Callable[..., Any],
    reduce_scatter: Callable[..., Any],
    *,
    last_stays: bool = False,
) -> list[Any]:
    """As FSDP does: a weight is gathered for forward, given back, and gathered again."""
    outputs = [x]
    weight = None
    for shard in shards:
        weight = None
        weight = all_gather(shard)
        outputs.append(torch.tanh(outputs[-1] @ weight))
    if not last_stays:
        weight = None
    y = outputs.pop()
    gradient = 2 * y / y.numel()
    gradients: list[Any] = []
    for shard in reversed(shards):
        x = outputs.pop()
        gradient = gradient * (1 - y * y)
        if weight is None:
            weight = all_gather(shard)
        of_x = gradient @ weight.T
        weight = None
        gradients.insert(0, reduce_scatter(x.T @ gradient))
        y, gradient = x, of_x
    return gradients


def _same_gradients(run: Run, expected: Sequence[list[torch.Tensor]]) -> None:
    if _are_backwards(run.results[0], expected[0]):
        raise NotFixed(
            "The gradients are right, but in the wrong order: yours go from the last layer to the "
            "first. The list of shards goes from the first to the last."
        )
    for rank, (own, wanted) in enumerate(zip(run.results, expected, strict=True)):
        for layer, (found, right) in enumerate(zip(own, wanted, strict=True)):
            message = (
                f"The gradient of layer {layer}'s shard on rank {rank} is not that of the mean "
                "over all ranks."
            )
            require_close(found, right, message)


def _are_backwards(found: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(right) > 1 and all(
        torch.allclose(one, other, rtol=SAME, atol=SAME * float(other.abs().max()))
        for one, other in zip(reversed(found), right, strict=True)
    )


def _least_sent(run: Run) -> dict[str, tuple[int, str]]:
    weights_bytes = run.case["layers"] * 4 * WIDTH * WIDTH
    return {
        GATHER: (weights_bytes // RANKS, "its shards have, which every rank needs once at least"),
        REDUCE_SCATTER: (weights_bytes, "its gradients have"),
    }


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
        build=_shards_and_rows,
        step=_step,
        room_bytes=ROOM_BYTES,
        least_sent=_least_sent,
        most_flops=MOST_FLOPS,
        reference=_gathered_for_each_layer,
        best=partial(_gathered_for_each_layer, last_stays=True),
        steps_name="collectives",
        question="Which weight is gathered more than twice?",
        compare=_same_gradients,
    ),
)

EXERCISE = Exercise(name="workshop_d_fsdp", module=__name__, tasks=(FSDP,))
