"""A function of its own, whose names end with it."""

from __future__ import annotations

import typing

import torch


def _sums(prepare: typing.Callable[[], torch.Tensor]) -> torch.Tensor:
    return torch.linalg.vector_norm(prepare(), ord=1, dim=0)  # no number is negative


def hand_over(
    prepare: typing.Callable[[], torch.Tensor], start_worker: typing.Callable[[], None]
) -> torch.Tensor:
    table = prepare()
    sums = table.sum(0)
    del table
    with torch.cuda.device(0):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    start_worker()
    return sums
