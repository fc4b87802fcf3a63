"""The cache's explorer, against arithmetic and the virtual GPU's own limits."""

from __future__ import annotations

from vramlab.units import GIB
from vramlab_course.formulas.kv_cache import KVCache
from vramlab_course.lessons.l07_inference.explorer import (
    measure_cache,
    parameter_count,
)

LLAMA_8B = {"layers": 32, "heads": 32, "kv_heads": 8, "head_size": 128}


def test_parameters_of_llama_3_8b_without_its_vocabulary() -> None:
    # per layer: 2 x 4096 x 4096 + 2 x 1024 x 4096 + 3 x 4096 x 14336 = 218,103,808
    assert parameter_count(**LLAMA_8B) == 32 * 218_103_808


def test_what_fits_is_measured() -> None:
    cache = KVCache(32, 8, 128)
    memory = measure_cache(cache, 8192, 10 * GIB, "T4")
    assert memory.fits
    # 32 layers x 2 x 8 heads x 8192 tokens x 128 x 2 B = 1 GiB
    assert memory.cache_bytes == cache.held_bytes(8192) == GIB
    assert memory.weights_bytes == 10 * GIB


def test_the_longest_fits_and_twice_as_much_does_not() -> None:
    cache = KVCache(32, 8, 128)
    free_bytes = measure_cache(cache, 128, 8 * GIB, "T4").free_for_cache_bytes
    longest = cache.longest(free_bytes)
    # Blocks of a tensor end at multiples of 2 MiB, so a little less than the longest fits surely.
    assert measure_cache(cache, longest * 98 // 100, 8 * GIB, "T4").fits
    assert not measure_cache(cache, longest + 1024, 8 * GIB, "T4").fits


def test_weights_that_do_not_fit_leave_no_room() -> None:
    memory = measure_cache(KVCache(32, 8, 128), 128, 40 * GIB, "T4")
    assert (memory.fits, memory.free_for_cache_bytes, memory.cache_bytes) == (False, 0, 0)
