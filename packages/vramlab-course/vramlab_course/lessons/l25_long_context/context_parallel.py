"""One long text on several GPUs: ring attention and Ulysses, the course's own, written to be read.

Each rank has a part of the sequence. Query, key and value are (batch, heads, part, head size).

- Ring attention (arXiv 2310.01889): queries stay, keys and values travel around the ring.
- Ulysses (arXiv 2309.14509): an all-to-all turns parts of the sequence with all heads into the
  whole sequence with a part of the heads, and back.

Not causal: then every rank has as much to do as any other. With a causal mask, parts are dealt out
so that each rank has an early and a late one; bytes are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

_forward = torch.ops.aten._scaled_dot_product_efficient_attention
_backward = torch.ops.aten._scaled_dot_product_efficient_attention_backward


def block_at(rank: int, turn: int, ranks: int) -> int:
    """Return whose keys and values a rank has at a turn: first its own, then its neighbours'."""
    return (rank - turn) % ranks


def attend_block(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Attend to one block by PyTorch's memory-efficient kernel: output, and logarithms of sums."""
    output, sums, *_ = _forward(query, key, value, None, True)
    return output, sums[..., : query.shape[2]]


def merge(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Put outputs of two blocks together, each weighted by its share of the sums (float32)."""
    sums = torch.logaddexp(one[1], other[1])
    output = one[0] * (one[1] - sums).exp().unsqueeze(-1)
    output += other[0] * (other[1] - sums).exp().unsqueeze(-1)
    return output, sums


class RingAttention(torch.autograd.Function):
    """(batch, heads, part, head size) of query, key and value to the same, on every rank."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        merged = None
        for keys, values in _travelling([key, value]):
            output, sums = attend_block(query, keys, values)
            merged = (output.float(), sums) if merged is None else merge(merged, (output, sums))
        assert merged is not None
        output = merged[0].to(query.dtype)
        ctx.save_for_backward(query, key, value, output, merged[1])
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value, output, sums = ctx.saved_tensors
        sums = functional.pad(sums, (0, -sums.shape[-1] % 32))  # as the kernel has them
        seed = torch.zeros((), dtype=torch.int64)
        of_query = torch.zeros_like(query, dtype=torch.float32)
        of_key, of_value = (torch.zeros_like(part, dtype=torch.float32) for part in (key, value))
        # A block's gradients travel with it, and one hop further, to come home.
        ranks = dist.get_world_size()
        for turn in range(ranks):
            parts = _backward(
                gradient,
                query,
                key,
                value,
                None,
                output,
                sums,
                seed,
                seed,
                0.0,
                [True, True, True, False],
            )
            of_query += parts[0]
            of_key += parts[1]
            of_value += parts[2]
            del parts
            if turn < ranks - 1:
                key, value, of_key, of_value = passed_on([key, value, of_key, of_value])
        of_key, of_value = passed_on([of_key, of_value])
        return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype)


def _travelling(tensors: Sequence[Tensor]) -> Iterator[Sequence[Tensor]]:
    """Yield this rank's tensors, then those of each other rank as they come by."""
    ranks = dist.get_world_size()
    for turn in range(ranks):
        yield tensors
        if turn < ranks - 1:
            tensors = passed_on(tensors)


def passed_on(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Send tensors to the next rank, and give those that come from the one before."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if ranks == 1:
        return list(tensors)
    tensors = [tensor.contiguous() for tensor in tensors]
    received = [torch.empty_like(tensor) for tensor in tensors]
    calls = [dist.P2POp(dist.isend, tensor, (rank + 1) % ranks) for tensor in tensors]
    calls += [dist.P2POp(dist.irecv, tensor, (rank - 1) % ranks) for tensor in received]
    for call in dist.batch_isend_irecv(calls):
        call.wait()
    return received


class _Exchanged(torch.autograd.Function):
    """Cut along one dimension, put together along another; its gradient goes the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: int, joined: int) -> Tensor:
        ctx.cut, ctx.joined = cut, joined
        ranks = dist.get_world_size()
        sent = torch.stack(x.chunk(ranks, dim=cut))
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        return torch.cat(received.unbind(), dim=joined)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _Exchanged.apply(gradient, ctx.joined, ctx.cut), None, None  # type: ignore[no-untyped-call]


def exchanged(x: Tensor, cut: int, joined: int) -> Tensor:
    """Cut a tensor in one dimension among all ranks, and join what comes in another."""
    result: Tensor = _Exchanged.apply(x, cut, joined)  # type: ignore[no-untyped-call]
    return result


def ring_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend to the whole sequence, whose keys and values come by."""
    output: Tensor = RingAttention.apply(query, key, value)  # type: ignore[no-untyped-call]
    return output


def ulysses_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend to the whole sequence, with a part of the heads."""
    query, key, value = (exchanged(part, cut=1, joined=2) for part in (query, key, value))
    attended = functional.scaled_dot_product_attention(query, key, value)
    return exchanged(attended, cut=2, joined=1)
