"""The gradient of an embedding's weight."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from kernel_events import A100, H200, T4, Events, Model, meta

from vramlab.cuda_rules.cub import radix_sort_bytes, scan_bytes, unique_by_key_bytes
from vramlab.kernels.embedding import partial_rows

aten = torch.ops.aten
OUT = ("output", 0)
Takes = Callable[..., list[int]]


def tokens(*shape: int) -> torch.Tensor:
    return meta(*shape, dtype=torch.int64)


def test_rows_of_partial_sums() -> None:
    # 16384 tokens: at most 16384 different ones, and 1638 more parts of 10 repetitions
    assert partial_rows(16_384, 30_522) == 18_022
    # at most 2 different ones
    assert partial_rows(16_384, 2) == 1640


def test_bert_words_of_32_sequences_of_512(events: Events) -> None:
    count, index_bytes = 32 * 512, 32 * 512 * 8
    # Numbers up to 30522 have 15 bits.
    sort, select = radix_sort_bytes(count, 8, 8, A100, 15), unique_by_key_bytes(count, A100)
    scan = scan_bytes(count, 8)
    gradient = meta(32, 512, 768)
    backward = aten.embedding_dense_backward.default
    assert events(backward, gradient, tokens(32, 512), 30522, 0, False, gpu=A100) == [
        ("take", index_bytes),  # sorted
        ("take", index_bytes),  # places before
        ("take", index_bytes),  # places in order
        ("take", sort),
        ("give", sort),
        ("give", index_bytes),
        OUT,
        ("take", index_bytes),  # where each token begins
        ("take", 8),
        ("take", index_bytes),  # different tokens
        ("take", select),
        ("give", select),
        ("give", index_bytes),
        ("take", index_bytes),  # parts of each token: 16384 < 30522
        ("take", index_bytes),
        ("take", scan),
        ("give", scan),
        ("take", 8),
        ("take", 18_022 * 8),
        ("take", 18_022 * 768 * 4),  # 52.8 MiB of partial sums
        ("give", 18_022 * 768 * 4),
        ("give", 18_022 * 8),
        ("give", 8),
        ("give", index_bytes),
        ("give", index_bytes),
        ("give", 8),
        ("give", index_bytes),
        ("give", index_bytes),
        ("give", index_bytes),
    ]


def test_partial_sums_of_halves_are_float32(takes: Takes) -> None:
    gradient = meta(4096, 64, dtype=torch.bfloat16)
    backward = aten.embedding_dense_backward.default
    # 4096 tokens of a vocabulary of 1000: 409 + 1000 rows
    assert takes(backward, gradient, tokens(4096), 1000, -1, False)[-1] == 1409 * 64 * 4


def test_few_tokens_are_summed_in_one_kernel(takes: Takes) -> None:
    """Tokens of two types, as BERT has: blocks for 2 rows are few, and each row has many sums."""
    backward = aten.embedding_dense_backward.default
    rows = 4096 // 10 + 2
    of_halves = takes(backward, meta(4096, 64, dtype=torch.bfloat16), tokens(4096), 2, -1, False)
    assert of_halves[-2:] == [8 * rows, 4 * 2 * 64]  # each sum's token; the result in float32
    assert takes(backward, meta(4096, 64), tokens(4096), 2, -1, False)[-2:] == [8 * rows, 8 * rows]
    before = takes(backward, meta(4096, 64), tokens(4096), 2, -1, False, version=(2, 10))
    assert before[-1] == rows * 64 * 4


@pytest.mark.parametrize(
    ("gpu", "one_pass", "two_passes", "all_passes"),
    # As PyTorch 2.13.0 and 2.12.1 ask on the native engine: 4096 tokens of 2 types, of 512 or
    # 30522 words, and of any number.
    [(T4, 4607, 72_191, 84_479), (A100, 4607, 72_191, 84_479), (H200, 3583, 71_167, 83_455)],
)
def test_since_2_13_tokens_are_sorted_by_the_bits_they_have(
    takes: Takes, gpu: Model, one_pass: int, two_passes: int, all_passes: int
) -> None:
    def sort_bytes(words: int, version: tuple[int, int]) -> int:
        operands = meta(4096, 64), tokens(4096), words, -1, False
        backward = aten.embedding_dense_backward.default
        return takes(backward, *operands, gpu=gpu, version=version)[3]

    assert sort_bytes(2, (2, 13)) == one_pass
    assert sort_bytes(512, (2, 13)) == sort_bytes(30_522, (2, 13)) == two_passes
    assert {sort_bytes(words, (2, 12)) for words in (2, 512, 30_522)} == {all_passes}


def test_expanded_indices_are_copied(takes: Takes) -> None:
    weight, indices = meta(10, 8), tokens(16)
    assert takes(aten.embedding.default, weight, indices) == []
    assert takes(aten.embedding.default, weight, indices.expand(4, 16)) == [8 * 4 * 16]


def test_bags_are_summed_by_token_however_few_they_are(takes: Takes) -> None:
    """20 indices of 10 rows: sorted as those of many are; of the largest, nothing is summed."""
    backward = aten._embedding_bag_dense_backward.default
    bags = (tokens(20), tokens(4), torch.empty(4, 6, dtype=torch.int64, device="meta"))
    for mode, scales in ((0, False), (1, True)):
        found = takes(backward, meta(4, 6), tokens(20), *bags, 10, scales, mode, None, gpu=A100)
        counted = [160, 1279, 1279] if scales else []  # how often each is there, by two scans
        partial_rows_bytes = (20 // 10 + 10) * 8
        assert found == [
            *[160] * 3,
            1,
            *counted,
            160,
            8,
            160,
            1279,
            80,
            80,
            1279,
            8,
            partial_rows_bytes,
            partial_rows_bytes // 8 * 6 * 4,
        ]
    assert takes(backward, meta(4, 6), tokens(20), *bags, 10, False, 2, None) == []
    assert takes(backward, meta().expand(4, 6), tokens(20), *bags, 10, False, 2, None) == [96]
