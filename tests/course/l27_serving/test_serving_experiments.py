"""Caches that are reserved, in pages, and of latents, at other sizes than the papers'."""

from __future__ import annotations

import torch

from vramlab import VirtualGPU
from vramlab.units import GIB, MIB
from vramlab_course.lessons.l27_serving.experiment import OPT, fill_by_reserving, fill_with_pages
from vramlab_course.lessons.l27_serving.paged_cache import PagedCache

SIZES = OPT[0].cache


def test_reserving_stops_where_the_room_does() -> None:
    with VirtualGPU("A100-40GB"):
        # 1600 MiB each: 2 in 4 GiB
        reserved = fill_by_reserving(SIZES, 2048, 4 * GIB)
        assert torch.cuda.memory_allocated() == 2 * 1600 * MIB
        assert [piece.nbytes for piece in reserved] == [1600 * MIB] * 2
        # and the limit is gone again
        assert torch.empty(5 * GIB, dtype=torch.uint8, device="cuda").nbytes == 5 * GIB


def test_pages_are_given_until_none_is_left() -> None:
    with VirtualGPU("T4"):
        cache = PagedCache(100, 16, layers=1, kv_heads=1, head_size=8)
        assert fill_with_pages(cache, 33) == 33  # 3 pages each
        assert cache.used_pages == 99
