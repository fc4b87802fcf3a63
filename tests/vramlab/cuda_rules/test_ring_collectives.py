"""Bytes around a ring, and their least times."""

from __future__ import annotations

import pytest

from vramlab import catalogue
from vramlab.cuda_rules.collectives import interconnects_of, link_seconds, ring_sent_bytes


def test_an_all_reduce_sends_each_piece_twice_but_to_the_last() -> None:
    # 4 ranks, pieces of 100 B: three times in the one half, three times in the other
    assert ring_sent_bytes("all-reduce", 400, 4) == 3 * 100 + 3 * 100
    assert ring_sent_bytes("all-gather", 400, 4) == 300
    assert ring_sent_bytes("reduce-scatter", 400, 4) == 300


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    for ranks in (1, 2, 8, 16):
        halves = [ring_sent_bytes(kind, 1600, ranks) for kind in ("reduce-scatter", "all-gather")]
        assert ring_sent_bytes("all-reduce", 1600, ranks) == sum(halves)


def test_many_ranks_send_hardly_more_than_twice_the_tensor() -> None:
    assert ring_sent_bytes("all-reduce", 16_384, 16_384) == 2 * 16_383


def test_who_is_alone_sends_nothing() -> None:
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce"):
        assert ring_sent_bytes(kind, 400, 1) == 0


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"No collective named 'gossip'\. Known: all-reduce"):
        ring_sent_bytes("gossip", 1, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 ranks"):
        ring_sent_bytes("all-reduce", 1, 0)


def test_least_times_over_the_links_of_the_catalogue() -> None:
    a100, t4 = catalogue.find("A100-40GB"), catalogue.find("T4")
    assert interconnects_of(a100) == ("NVLink", "PCI Express")
    assert interconnects_of(t4) == ("PCI Express",)
    assert link_seconds(300 * 10**9, a100, "NVLink") == 1.0  # 300 GB/s one way
    # 16 lanes x 8 GT/s x 128 / 130 / 8 = 15.75 GB/s
    assert link_seconds(t4.pcie_bandwidth_bytes_per_s, t4, "PCI Express") == 1.0
    with pytest.raises(ValueError, match="T4 has no NVLink: PCI Express"):
        link_seconds(1, t4, "NVLink")
