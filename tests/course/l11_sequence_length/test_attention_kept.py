"""What attention and retention keep, by hand."""

from __future__ import annotations

import pytest

from vramlab_course.formulas.bert import Bert
from vramlab_course.lessons.l11_sequence_length.attention_formulas import (
    bert_held_bytes,
    kept_bytes,
    quadratic_bytes,
    score_bytes,
)
from vramlab_course.lessons.l11_sequence_length.fit_formulas import quadratic_fit
from vramlab_course.lessons.l11_sequence_length.retention_formulas import (
    chunkwise_bytes,
    parallel_bytes,
    state_bytes,
)


def test_bytes_of_a_score() -> None:
    assert score_bytes("step by step") == 4  # the softmax
    assert score_bytes("step by step", dropout=True) == 4 + 1 + 4  # mask, what was dropped out of
    assert score_bytes("step by step", "float16", dropout=True) == 2 + 1 + 2
    assert score_bytes("math", "float16", dropout=True) == 4 + 1 + 4  # it computes in float32
    for kind in ("memory-efficient", "flash", "cuDNN"):
        assert score_bytes(kind, "float16", dropout=True) == 0


def test_bert_base_keeps_1296_bytes_for_each_squared_token() -> None:
    assert quadratic_bytes(12, 12) == 12 * 12 * 9 == 1296
    assert quadratic_bytes(12, 12, dropout=False) == 12 * 12 * 4
    assert quadratic_bytes(24, 16, "float16", batch=2) == 2 * 24 * 16 * 5
    # 1296 B is 0.00124 MiB; the document prints 0.00123.
    assert round(1296 / 2**20, 5) == 0.00124


def test_kept_by_each_kind() -> None:
    # 2 x 4 heads x 512 tokens x 64: 262144 elements of a query, 2097152 scores
    shape = (2, 4, 512, 64)
    assert kept_bytes("step by step", *shape) == 262144 * 4 + 2097152 * 4
    assert kept_bytes("step by step", *shape, dropout=True) == 262144 * 4 + 2097152 * 9
    # query and key scaled; in half precision query, key and value in float32
    assert kept_bytes("math", *shape) == 3 * 262144 * 4 + 2097152 * 4
    assert kept_bytes("math", *shape, "float16") == 262144 * (2 + 3 * 4) + 2097152 * 4
    # a logsumexp for each of 2 x 4 x 512 rows; and seed and offset of the random numbers
    assert kept_bytes("memory-efficient", *shape, "float16") == 262144 * 2 + 4096 * 4
    assert kept_bytes("flash", *shape, "float16") == 262144 * 2 + 4096 * 4 + 2 * 512


def test_memory_efficient_fills_rows_up_to_32() -> None:
    # 100 tokens count as 128: 8 heads x 128 x 4 B = 4096 B; the output is 8 x 100 x 64 x 4 B
    assert kept_bytes("memory-efficient", 1, 8, 100, 64) == 204800 + 4096
    # flash has 8 x 100 x 4 B = 3200 B, in a block of 3584 B
    assert kept_bytes("flash", 1, 8, 100, 64, "float16") == 102400 + 3584 + 1024


def test_twice_the_text_is_less_than_four_times_the_memory_and_more_than_twice() -> None:
    sizes = Bert(positions=2560)
    kept = [
        bert_held_bytes(sizes, 1, length, True) - bert_held_bytes(sizes, 1, 0, True)
        for length in (1280, 2560)
    ]
    assert 2 < kept[1] / kept[0] < 4


def test_a_parabola_through_its_own_points() -> None:
    assert quadratic_fit((x, 3 * x * x + 5 * x + 7) for x in range(1, 9)) == (3, 5, 7)
    # Three points determine it; the sum of two fits is the fit of the sums.
    one = quadratic_fit([(1, 1), (2, 5), (4, 2), (8, 9)])
    two = quadratic_fit([(1, 4), (2, 0), (4, 3), (8, 1)])
    both = quadratic_fit([(1, 5), (2, 5), (4, 5), (8, 10)])
    assert both == pytest.approx([a + b for a, b in zip(one, two, strict=True)])


def test_retention() -> None:
    # (1, 2, 256, 256) weights and (2, 256, 256) decays of 4 B, and an output (1, 2, 256, 64)
    assert parallel_bytes(1, 2, 256, 64) == 524288 + 524288 + 131072
    assert state_bytes(1, 2, 64) == 2 * 64 * 64 * 4
    # 4 chunks of 64: 4 weights (2, 64, 64), 3 queries and 4 keys (2, 64, 64), 5 states, all 32768
    # B; one (2, 64, 64) of decays, three small ones of 512 B, and the output
    assert chunkwise_bytes(1, 2, 256, 64, 64) == (4 + 7 + 5 + 1) * 32768 + 3 * 512 + 131072
    with pytest.raises(ValueError, match="100 tokens are no whole number of chunks of 64"):
        chunkwise_bytes(1, 2, 100, 64, 64)
