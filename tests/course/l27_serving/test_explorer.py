"""The explorer of servers, against arithmetic and the virtual GPU's own limits."""

from __future__ import annotations

from vramlab.units import GIB, MIB
from vramlab_course.lessons.l27_serving.explorer import measure_server, serving_explorer, weights_of


def test_weights_of_few_bits_have_a_scale_for_each_128() -> None:
    assert weights_of(13 * 10**9, 16) == 26 * 10**9
    assert weights_of(128 * 10**6, 4) == 64 * 10**6 + 2 * 10**6
    assert weights_of(128 * 10**6, 8) == 128 * 10**6 + 2 * 10**6


def test_the_cache_gets_whole_pieces_of_what_is_left() -> None:
    # T4: 14.74 GiB, of which 9/10 are 13.27 GiB; 3.27 are left
    memory = measure_server(10 * GIB, 512 * MIB, "T4")
    assert memory.pool_bytes == 6 * 512 * MIB
    assert measure_server(14 * GIB, MIB, "T4").pool_bytes == 0
    assert measure_server(40 * GIB, MIB, "T4").pool_bytes == 0


def test_the_explorer_counts_requests() -> None:
    explorer = serving_explorer(tokens=256)
    paged = explorer.output.value
    explorer.controls["page"].value = "reserve the longest"
    # 9/10 of 39.39 GiB less 26 GB are 11.24 GiB: 7 texts of 2,048 tokens, 1,600 MiB each
    assert "7 requests of 256 tokens fit at a time." in explorer.output.value
    assert "requests of 256 tokens fit at a time." in paged
    explorer.controls["gpu"].value = "T4"
    assert "The weights leave no room for a request." in explorer.output.value
    explorer.controls["tokens"].value = 4096
    assert "reads at most 2,048 tokens, and 4,096 are asked for" in explorer.output.value
