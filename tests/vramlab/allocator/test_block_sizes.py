"""How large the block for a request is, and the segment for a block."""

from __future__ import annotations

import pytest

from vramlab.allocator import AllocatorSettings, round_request, segment_size
from vramlab.units import KIB, MIB


@pytest.mark.parametrize(
    ("requested", "rounded"),
    [
        (1, 512),
        (511, 512),
        (512, 512),
        (513, 1024),
        (MIB - 1, MIB),
        (MIB, MIB),
        (MIB + 1, MIB + 512),
    ],
)
def test_a_request_is_rounded_up_to_512_bytes(requested: int, rounded: int) -> None:
    assert round_request(requested) == rounded


@pytest.mark.parametrize(
    ("block", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),  # the last of the small pool
        (MIB + 512, 20 * MIB),  # the first of the large pool
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),  # from here on made to measure
        (10 * MIB + 512, 12 * MIB),
        (21 * MIB, 22 * MIB),
    ],
)
def test_a_segment_is_2_or_20_mib_or_made_to_measure(block: int, segment: int) -> None:
    assert segment_size(block) == segment


def test_power_of_two_divisions_round_to_steps_between_powers_of_two() -> None:
    four = (4,) * 16
    # 1200 KiB lies between 1024 and 2048 KiB; the steps are 1024, 1280, 1536, 1792
    assert round_request(1200 * KIB, four) == 1280 * KIB
    assert round_request(1280 * KIB, four) == 1280 * KIB
    assert round_request(1793 * KIB, four) == 2048 * KIB
    # up to 512 B x 4 divisions the ordinary rounding holds
    assert round_request(2048, four) == 2048
    assert round_request(2049, four) == 2560  # steps of 2048 / 4 = 512


def test_each_interval_has_its_own_divisions() -> None:
    divisions = AllocatorSettings.parse(
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"
    ).roundup_power2_divisions
    assert round_request(300 * MIB + 1, divisions) == 300 * MIB + 512
    assert round_request(600 * MIB, divisions) == 768 * MIB  # 512 + 512 / 2
    assert round_request(1100 * MIB, divisions) == 1280 * MIB  # 1024 + 1024 / 4
    assert round_request(2100 * MIB, divisions) == 2304 * MIB  # 2048 + 2048 / 8
