"""Pages, what reserving leaves unused, latents, few bits: by hand and against measurement."""

from __future__ import annotations

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.units import GIB, KIB
from vramlab_course.formulas.kv_cache import KVCache
from vramlab_course.lessons.l27_serving.formulas import (
    latent_token_bytes,
    quantized_bytes,
    requests_at_once,
    reserved_bytes,
)
from vramlab_course.lessons.l27_serving.paged_cache import PagedCache
from vramlab_course.lessons.l27_serving.weight_only import WeightOnlyLinear

OPT_13B = KVCache(40, 40, 128).token_bytes


def test_requests_of_opt_13b_in_12_gib() -> None:
    assert OPT_13B == 2 * 40 * 40 * 128 * 2 == 800 * KIB
    # 12 GiB = 15728.64 tokens: 7 x 2048 of them
    assert requests_at_once(12 * GIB, 2048, OPT_13B, None) == 7
    # 983 pages of 16, and 21 for 330 tokens
    assert requests_at_once(12 * GIB, 330, OPT_13B) == 983 // 21 == 46


def test_what_is_reserved_and_not_used_adds_up() -> None:
    parts = reserved_bytes(330, 499, 2048, 10, requests=7, pool_bytes=150_000)
    assert parts == {
        "tokens": 7 * 330 * 10,
        "reserved, used later": 7 * 169 * 10,
        "reserved, never used": 7 * 1549 * 10,
        "other: too small for one more": 150_000 - 7 * 2048 * 10,
    }


@pytest.mark.parametrize(
    ("prompt", "answers", "new", "expected"),
    [
        (160, 3, 20, 10 + 3 * 2),  # the prompt ends with a page
        (100, 4, 5, 6 + 4 * 1),  # 6 full pages; 105 tokens are 7 pages
        (1000, 30, 120, 62 + 30 * 8),
        (5, 2, 1, 2),  # no full page: nothing is shared in the end
    ],
)
def test_answers_share_full_pages_of_their_prompt(
    prompt: int, answers: int, new: int, expected: int
) -> None:
    with VirtualGPU("T4"):
        cache = PagedCache(400, 16, layers=1, kv_heads=1, head_size=8)
        cache.grow("0", prompt)
        for number in range(1, answers):
            cache.fork("0", str(number))
        for number in range(answers):
            cache.grow(str(number), new)
        assert cache.used_pages == expected


def test_a_latent_of_deepseek_v2() -> None:
    assert latent_token_bytes(60) == 60 * (512 + 64) * 2 == int(67.5 * KIB)


@pytest.mark.parametrize(
    ("bits", "columns", "expected"),
    [
        (4, 256, 512 * 128 + 512 * 2 * 2),  # half a byte each; 2 groups in a row
        (8, 200, 512 * 200 + 512 * 2 * 2),
    ],
)
def test_few_bits_are_measured(bits: int, columns: int, expected: int) -> None:
    assert quantized_bytes(512, columns, bits) == expected
    with VirtualGPU("T4"):
        weight = torch.zeros(512, columns, device="cuda")
        before_bytes = torch.cuda.memory_allocated()
        layer = WeightOnlyLinear(weight, bits)
        assert torch.cuda.memory_allocated() - before_bytes == expected
        del layer
