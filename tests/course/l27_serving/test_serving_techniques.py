"""Pages hold what was written, batches keep their order, and few bits come near to the weight."""

from __future__ import annotations

import pytest
import torch

from vramlab import VirtualGPU
from vramlab_course.lessons.l27_serving.batching import (
    Turn,
    continuously,
    in_batches,
    last_step,
    used_share,
)
from vramlab_course.lessons.l27_serving.paged_cache import OutOfPages, PagedCache
from vramlab_course.lessons.l27_serving.weight_only import WeightOnlyLinear, dequantize, quantize


def small_cache(pages: int = 8) -> PagedCache:
    """Pages of 4 tokens: 2 layers, 1 head of 2 numbers, float32."""
    return PagedCache(pages, 4, layers=2, kv_heads=1, head_size=2, dtype=torch.float32)


def states(*tokens: float) -> torch.Tensor:
    """Keys or values of tokens: each layer and head has the token's number."""
    return torch.tensor(tokens, device="cuda").reshape(1, -1, 1, 1).expand(2, -1, 1, 2)


def read(cache: PagedCache, request: str) -> list[list[float]]:
    """Keys and values of the second layer, as the tokens' numbers."""
    return [kept[:, 0, 1].tolist() for kept in cache.read(request, 1)]


def test_what_is_written_page_by_page_is_read_in_order() -> None:
    with VirtualGPU("T4", values=True):
        cache = small_cache()
        for token in range(6):  # Ben's pages lie between Anna's
            cache.append("Anna", states(token), states(-token))
            cache.append("Ben", states(100 + token), states(token))
        assert cache.tables == {"Anna": [0, 2], "Ben": [1, 3]}
        assert read(cache, "Anna") == [[0, 1, 2, 3, 4, 5], [0, -1, -2, -3, -4, -5]]
        assert read(cache, "Ben")[0] == [100, 101, 102, 103, 104, 105]


def test_who_writes_on_in_a_shared_page_gets_a_copy_but_the_last_does_not() -> None:
    with VirtualGPU("T4", values=True):
        cache = small_cache()
        cache.append("Anna", states(0, 1, 2, 3, 4, 5), states(0, 1, 2, 3, 4, 5))
        cache.fork("Anna", "Ben")
        assert (cache.used_pages, cache.holders[:2]) == (2, [2, 2])
        cache.append("Ben", states(6), states(6))
        cache.append("Anna", states(7), states(7))
        assert cache.tables == {"Anna": [0, 1], "Ben": [0, 2]}
        assert read(cache, "Anna")[0] == [0, 1, 2, 3, 4, 5, 7]
        assert read(cache, "Ben")[0] == [0, 1, 2, 3, 4, 5, 6]
        cache.release("Anna")
        assert (sorted(cache.free), cache.holders[:3]) == ([1, 3, 4, 5, 6, 7], [1, 0, 1])
        assert read(cache, "Ben")[0] == [0, 1, 2, 3, 4, 5, 6]


def test_a_request_without_pages_changes_nothing() -> None:
    with VirtualGPU("T4"):
        cache = small_cache(pages=2)
        assert cache.page_bytes == 2 * 2 * 4 * 1 * 2 * 4
        cache.grow("Anna", 6)
        with pytest.raises(OutOfPages, match="'Ben' needs 1 pages more; 0 are free"):
            cache.grow("Ben", 1)
        cache.fork("Anna", "Cleo")
        with pytest.raises(OutOfPages, match="'Cleo' needs 1 pages more"):
            cache.grow("Cleo", 1)  # a copy of the second page
        assert (cache.tables, cache.holders) == ({"Anna": [0, 1], "Cleo": [0, 1]}, [2, 2])
        cache.grow("Anna", 0)
        assert cache.lengths == {"Anna": 6, "Cleo": 6}


def test_a_free_place_goes_to_the_next_request() -> None:
    answers = (2, 5, 3, 1)
    # 5 steps for the first two, 3 for the others
    assert in_batches(answers, 2) == [
        Turn(0, 0, 0, 2),
        Turn(1, 1, 0, 5),
        Turn(2, 0, 5, 3),
        Turn(3, 1, 5, 1),
    ]
    turns = continuously(answers, 2)
    assert turns == [Turn(0, 0, 0, 2), Turn(1, 1, 0, 5), Turn(2, 0, 2, 3), Turn(3, 0, 5, 1)]
    assert (last_step(turns), used_share(turns, 2)) == (6, 11 / 12)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_number_is_off_by_half_a_step_at_most(bits: int) -> None:
    weight = torch.linspace(-3, 3, 4 * 96).reshape(4, 96) ** 3
    numbers, scales = quantize(weight, bits, group=64)
    assert numbers.shape == (4, 96 * bits // 8)
    assert scales.shape == (4, 2)
    found = dequantize(numbers, scales, bits, group=64)
    steps = scales.float().repeat_interleave(64, dim=1)[:, :96]
    # and what float16 rounds, of scale and product
    assert bool(((found - weight).abs() <= steps * 0.5 + weight.abs() * 2**-9).all())


def test_the_layer_multiplies_with_the_rounded_weight() -> None:
    weight = torch.tensor([[7.0, -7.0, 3.0, 1.0]]).repeat(1, 32)  # a scale of 1: all exact
    layer = WeightOnlyLinear(weight)
    assert layer(torch.ones(1, 128, dtype=torch.float16)).tolist() == [[128.0]]
