"""Batches for the programs of trials, and whether each is loaded once, in their order."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import NotFixed

MOST_SHOWN = 12
PARTS = 16
"""Numbers of a batch become larger from part to part."""

ROWS_STEP = 8192
"""A batch of a multiple of this many rows, of 64 numbers each, takes a multiple of 2 MiB."""


def numbered_batch(index: int, *shape: int) -> torch.Tensor:
    """Make a batch in float32 on the GPU, the same every time, and another one for each index.

    Takes the batch's memory and nothing besides, and leaves PyTorch's generators as they are. Its
    numbers are random, from 0 to 1, and larger towards the end, so that no part of a batch gives
    the result of the whole.
    """
    generator = torch.Generator(device="cuda").manual_seed(index)
    batch = torch.empty(shape, device="cuda").uniform_(generator=generator)
    parts = batch.view(-1).chunk(PARTS)
    for number, part in enumerate(parts, start=1):
        part.mul_(number / len(parts))
    return batch


def whole_numbers(index: int, *shape: int) -> torch.Tensor:
    """Make a numbered batch of whole numbers from 0 to 250: their sums are exact in any order."""
    return numbered_batch(index, *shape).mul_(251).floor_()


def numbered_samples(start: int, stop: int, *shape: int) -> torch.Tensor:
    """Make samples by their numbers, from `start` up to `stop`, as `numbered_batch` makes batches.

    Each is the same in whatever batch it comes.
    """
    samples = torch.empty(stop - start, *shape, device="cuda")
    for sample, index in zip(samples, range(start, stop), strict=True):
        sample.uniform_(generator=torch.Generator(device="cuda").manual_seed(index))
    return samples


def pairs(*shape: int) -> Callable[[int], tuple[torch.Tensor, torch.Tensor]]:
    """Make what gives the numbered batch of an index, and targets for it: the batch turned around.

    Args:
        shape: of both; targets are in the opposite order along its second dimension.
    """

    def load(index: int) -> tuple[torch.Tensor, torch.Tensor]:
        batch = numbered_batch(index, *shape)
        return batch, batch.flip(1)

    return load


def batch_bytes(*shape: int) -> int:
    """Return the bytes of a batch in float32, before blocks round them."""
    return 4 * prod(shape)


def require_loaded(loaded: list[int], count: int) -> None:
    """Require that a program has loaded each of the batches 0 to `count` - 1.

    Raises:
        NotFixed: it has left some out.
    """
    if missing := sorted({*range(count)} - {*loaded}):
        raise NotFixed(f"It fits, but never loads batch {missing[0]} of the {count}.")


def check_order(loaded: list[int], count: int) -> None:
    """See to it that a program has loaded the batches 0 to `count` - 1.

    Raises:
        NotFixed: it has left some out, loaded some again, or changed their order.
    """
    if loaded != list(range(count)):
        shown = f"{', '.join(map(str, loaded[:MOST_SHOWN])) or 'none'}"
        more = ", ..." if len(loaded) > MOST_SHOWN else ""
        raise NotFixed(
            f"It fits, but does not load each of the {count} batches once and in order. It loaded "
            f"{shown}{more}."
        )
