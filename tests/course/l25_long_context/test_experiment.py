"""What a long text takes, and what ranks send that share it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vramlab import VirtualGPU
from vramlab_course.lessons.l25_long_context.experiment import (
    LLAMA_8B,
    ROOMY,
    measure_loss,
    measure_shared,
)
from vramlab_course.lessons.l25_long_context.formulas import (
    checkpoints_bytes,
    least_block,
    logits_bytes,
    ring_sent_bytes,
)

SMALL = replace(LLAMA_8B, width=256, vocabulary=4096)
TINY_BYTES = 4096
"""Losses, and sums of weights: some numbers of 512 B each."""


def test_the_loss_has_two_tensors_like_the_logits_in_forward_and_three_in_all() -> None:
    memory = measure_loss(1024, sizes=SMALL)
    logits = logits_bytes(1024, 4096)  # 8 MiB
    assert 0 <= memory.forward_peak_bytes - 2 * logits < TINY_BYTES
    assert 0 <= memory.peak_bytes - 3 * logits < TINY_BYTES


def test_in_pieces_there_are_those_of_a_piece() -> None:
    memory = measure_loss(1024, pieces=8, sizes=SMALL)
    assert 0 <= memory.forward_peak_bytes - 2 * logits_bytes(128, 4096) < 2 * TINY_BYTES
    assert memory.kept_bytes == 512


def test_transformers_own_loss_has_five_in_forward_and_seven_in_all() -> None:
    """Bf16 logits count once; their float32 copy, its log-softmax and gradients count twice."""
    memory = measure_loss(1024, sizes=SMALL, transformers=True)
    logits = logits_bytes(1024, 4096)
    labels_bytes = 4 * 8 * 1024  # padded and shifted
    assert 0 <= memory.forward_peak_bytes - (1 + 2 + 2) * logits < TINY_BYTES + labels_bytes
    assert 0 <= memory.peak_bytes - (1 + 2 + 2 + 2) * logits < TINY_BYTES + labels_bytes
    with pytest.raises(ValueError, match="no pieces, not 8"):
        measure_loss(1024, pieces=8, sizes=SMALL, transformers=True)


@pytest.mark.parametrize("ranks", [2, 8])
def test_what_is_sent_is_what_formulas_say(ranks: int) -> None:
    part = 1 * 8 * (2048 // ranks) * 64 * 2
    with VirtualGPU(ROOMY):
        ring = measure_shared("ring", ranks, 2048, heads=8, head_size=64)
        across = measure_shared("Ulysses", ranks, 2048, heads=8, head_size=64)
    assert ring.sent_bytes == ring_sent_bytes(ranks, 2 * part)
    # Keys and values as before, and their gradients in float32, one hop further to come home.
    assert ring.sent_backward_bytes == (ranks - 1) * 2 * part + ranks * 4 * part
    # Query, key, value and output, all but its own part of each.
    assert across.sent_bytes == (ranks - 1) * 4 * part // ranks
    assert across.sent_backward_bytes == across.sent_bytes


def test_formulas() -> None:
    assert logits_bytes(131_072, 128_256) == 33_621_540_864
    assert checkpoints_bytes(131_072, 4096, 32) == 2**35  # 32 GiB
    assert least_block(312e12, 300e9) == 1040
