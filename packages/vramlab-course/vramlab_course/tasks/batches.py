"""Batches for the programs of trials, and whether each is loaded once, in their order."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import NotFixed

MOST_SHOWN = 12
ROWS_STEP = 8192
"""A batch of a multiple of this many rows, of 64 numbers each, takes a multiple of 2 MiB."""


def numbered_batch(index: int, *shape: int) -> torch.Tensor:
    """Make a batch in float32 on the GPU, the same every time, and another one for each index.

    Takes the batch's memory and nothing besides. Its numbers go up from 0 to (250 + `index`) / 251
    and begin again.
    """
    values = torch.arange(prod(shape), device="cuda", dtype=torch.float32)
    return values.remainder_(251 + index).div_(251).reshape(shape)


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
    """Give the bytes of a batch in float32, before blocks round them."""
    return 4 * prod(shape)


def check_order(loaded: list[int], count: int) -> None:
    """See to it that a program has loaded the batches 0 to `count` - 1.

    Raises:
        NotFixed: it has left some out, loaded some again, or changed their order.
    """
    if loaded != list(range(count)):
        shown = f"{', '.join(map(str, loaded[:MOST_SHOWN])) or 'none'}"
        more = ", ..." if len(loaded) > MOST_SHOWN else ""
        raise NotFixed(
            f"It fits, but does not load each of the {count} batches once, in their order. It has "
            f"loaded {shown}{more}."
        )
