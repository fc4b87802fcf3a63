"""A loss in pieces, and attention over a text that ranks share: numbers are those of the whole."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from vramlab import VirtualGPU
from vramlab_course.lessons.l25_long_context import context_parallel
from vramlab_course.lessons.l25_long_context.chunked_loss import chunked_loss, whole_loss
from vramlab_course.lessons.l25_long_context.context_parallel import (
    attend_block,
    block_at,
    exchanged,
    merge,
    ring_attention,
)


def test_a_loss_in_pieces_is_the_loss_and_has_its_gradients() -> None:
    torch.manual_seed(0)
    targets = torch.randint(11, (10,))
    found = []
    for loss in (whole_loss, lambda *inputs: chunked_loss(*inputs, pieces=3)):
        generator = torch.Generator().manual_seed(1)
        hidden, weight = (torch.randn(n, 4, generator=generator) for n in (10, 11))
        hidden.requires_grad_()
        weight.requires_grad_()
        value = loss(hidden, weight, targets)
        value.backward()
        found.append((value.detach(), hidden.grad, weight.grad))
    torch.testing.assert_close(found[1], found[0])


def test_every_rank_meets_every_block_once_and_gets_it_from_the_one_before() -> None:
    turns = [[block_at(rank, turn, 5) for turn in range(5)] for rank in range(5)]
    for rank, blocks in enumerate(turns):
        assert sorted(blocks) == list(range(5))
        assert blocks[0] == rank
        assert blocks[1:] == turns[rank - 1][:-1]


def test_outputs_over_blocks_are_put_together_to_the_output_over_all() -> None:
    torch.manual_seed(0)
    with VirtualGPU("A100-40GB", values=True):
        query, key, value = (torch.randn(1, 2, 64, 16).to("cuda") for _ in range(3))
        blocks = zip(key.chunk(4, dim=2), value.chunk(4, dim=2), strict=True)
        first, *others = (attend_block(query, *block) for block in blocks)
        for other in others:
            first = merge(first, other)
        whole = functional.scaled_dot_product_attention(query, key, value)
        torch.testing.assert_close(first[0].cpu(), whole.cpu())


RANKS = 3


def test_a_ring_of_ranks_that_are_alike_attends_to_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every rank has the same part, so what comes is what was sent."""

    def as_sent(tensors: Sequence[Tensor]) -> list[Tensor]:
        return [tensor.clone() for tensor in tensors]

    monkeypatch.setattr(context_parallel, "passed_on", as_sent)
    monkeypatch.setattr(dist, "get_world_size", lambda: RANKS)
    torch.manual_seed(0)
    with VirtualGPU("A100-40GB", values=True):
        parts = [torch.randn(1, 2, 32, 16).to("cuda").requires_grad_() for _ in range(3)]
        gradient = torch.randn(1, 2, 32, 16).to("cuda")
        output = ring_attention(*parts)
        found = torch.autograd.grad(output, parts, gradient)
        whole = [part.repeat(1, 1, RANKS, 1) for part in parts]
        expected = functional.scaled_dot_product_attention(*whole)
        all_gradients = torch.autograd.grad(expected, parts, gradient.repeat(1, 1, RANKS, 1))
        torch.testing.assert_close(output.cpu(), expected[:, :, :32].cpu())
        for one, of_all_ranks in zip(found, all_gradients, strict=True):
            # A part was repeated for each rank, so its gradient was added up over them.
            torch.testing.assert_close(one.cpu(), of_all_ranks.cpu() / RANKS)


def test_exchanged_parts_are_whole_texts_of_some_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ranks, one after the other: a first round finds out what they send."""
    whole = torch.arange(6 * 12.0).view(1, 6, 12, 1)  # 6 heads, 12 tokens
    parts = whole.chunk(RANKS, dim=2)
    sent: list[Tensor] = []

    def note(received: Tensor, sending: Tensor) -> None:
        sent.append(sending)

    monkeypatch.setattr(dist, "get_world_size", lambda: RANKS)
    monkeypatch.setattr(dist, "all_to_all_single", note)
    for part in parts:
        exchanged(part, cut=1, joined=2)
    for rank in range(RANKS):

        def deliver(received: Tensor, sending: Tensor, rank: int = rank) -> None:
            received.copy_(torch.stack([from_one[rank] for from_one in sent[:RANKS]]))

        monkeypatch.setattr(dist, "all_to_all_single", deliver)
        assert torch.equal(
            exchanged(parts[rank], cut=1, joined=2), whole[:, 2 * rank : 2 * rank + 2]
        )
