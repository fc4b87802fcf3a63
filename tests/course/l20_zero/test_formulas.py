"""ZeRO in closed form: the paper's count, and what PyTorch divides, pads and sends."""

from __future__ import annotations

import pytest

from vramlab.units import MIB
from vramlab_course.lessons.l20_zero import formulas as zero

ADAM = 12
"""Bytes of states for each parameter in mixed precision."""


@pytest.mark.parametrize(
    ("stage", "bytes_"),
    [
        (0, 120_000_000_000),  # (2 + 2 + 12) x 7.5e9
        (1, 31_406_250_000),  # (2 + 2 + 12/64) x 7.5e9
        (2, 16_640_625_000),  # (2 + 14/64) x 7.5e9
        (3, 1_875_000_000),  # 16/64 x 7.5e9
    ],
)
def test_the_papers_table(stage: zero.Stage, bytes_: int) -> None:
    total_bytes = sum(zero.paper_bytes(7_500_000_000, 64, stage).values())
    assert total_bytes == bytes_
    printed = zero.PAPER_TABLE_GB[stage]
    digits = len(printed.partition(".")[2])
    assert f"{total_bytes / 1e9:.{digits}f}" == printed


def test_bytes_that_do_not_divide_are_rounded_up() -> None:
    # 3 parameters on 2 ranks: 6 B, 6 B, 36 / 2; 7 / 2 of the first two are no whole bytes
    assert zero.paper_bytes(3, 2, 1) == {
        zero.PARAMETERS: 6,
        zero.GRADIENTS: 6,
        zero.STATES: 18,
    }
    assert zero.paper_bytes(1, 4, 3)[zero.PARAMETERS] == 1  # 2 / 4


def test_only_the_third_stage_sends_more_by_the_papers_count() -> None:
    assert [zero.paper_moved(stage) for stage in zero.STAGES] == [2, 2, 2, 3]


@pytest.mark.parametrize(
    ("rows", "ranks", "shards"),
    [
        (3, 3, [1, 1, 1]),
        (10, 4, [3, 3, 3, 1]),
        (5, 4, [2, 2, 1, 0]),  # ceil(5 / 4) = 2 rows each: the last rank has nothing
        (2, 4, [1, 1, 0, 0]),
    ],
)
def test_rows_are_dealt_out_as_by_chunk(rows: int, ranks: int, shards: list[int]) -> None:
    assert [zero.shard_rows(rows, ranks, rank) for rank in range(ranks)] == shards
    assert zero.padded_rows(rows, ranks) == shards[0]


def test_whole_parameters_go_to_whoever_has_least() -> None:
    # 5 to the first, 4 to the second, 3 to the second (4 < 5), 1 to the first
    assert zero.greedy_partition([1, 3, 4, 5], 2) == [[5, 1], [4, 3]]
    assert zero.greedy_partition([7], 3) == [[7], [], []]


LAYER = [[(1024, 1024), (1024,)]]
"""One layer with a bias: 4 MiB and 4096 B."""


def test_what_each_stage_keeps() -> None:
    model = LAYER * 4
    weight, bias = 4 * 1024 * 1024, 4096
    whole = 4 * (weight + bias)
    assert zero.kept_bytes(0, model, 4) == {
        zero.PARAMETERS: whole,
        zero.GRADIENTS: whole,
        zero.STATES: 2 * whole,
    }
    # Four weights and four biases for four ranks: one of each.
    assert zero.kept_bytes(1, model, 4, rank=3)[zero.STATES] == 2 * (weight + bias)
    for stage in (2, 3):
        assert zero.kept_bytes(stage, model, 4, rank=2) == {
            zero.PARAMETERS: whole // 4,
            zero.GRADIENTS: whole // 4,
            zero.STATES: 2 * whole // 4,
        }


def test_shards_are_padded_and_states_are_not() -> None:
    # 1000 rows on 64 ranks: 16 rows each, 62 x 16 = 992, 8 for rank 62, none for rank 63
    row = 4 * 1000
    kept = zero.kept_bytes(3, [[(1000, 1000)]], 64, rank=62)
    assert kept[zero.PARAMETERS] == kept[zero.GRADIENTS] == 16 * row  # 64000 = 125 x 512
    assert kept[zero.STATES] == 2 * 32_256  # 8 x 4000 = 32000, in blocks 63 x 512
    empty = zero.kept_bytes(3, [[(1000, 1000)]], 64, rank=63)
    assert empty[zero.PARAMETERS] == 16 * row
    assert empty[zero.STATES] == 0
    assert zero.gathered_bytes([[(1000, 1000)]], 64) == 64 * 16 * row


def test_mixed_precision_moves_halves_and_keeps_wholes() -> None:
    model = [[(1024, 1024)]] * 8
    count = 8 * 2**20
    held = [sum(zero.held_bytes(stage, model, 4, mixed=True).values()) for stage in zero.STAGES]
    assert held[0] == 16 * count
    assert held[1] == 4 * count + ADAM * count // 4
    # FSDP2's gradients are float32 shards: a quarter of 2 B more than the paper counts.
    assert held[2] == 2 * count + 16 * count // 4
    assert held[3] == 16 * count // 4


def test_stage_2_holds_all_parameters_in_float32_too() -> None:
    model = [[(1024, 1024)]] * 8
    held = zero.held_bytes(2, model, 4)
    assert held.pop(zero.GATHERED) == 4 * 8 * 2**20
    assert held == zero.kept_bytes(2, model, 4) == zero.held_bytes(3, model, 4)


@pytest.mark.parametrize(
    ("stage", "multiple"),
    [(0, 2), (1, 3), (2, 2), (3, 3)],
)
def test_what_travels_in_a_step(stage: zero.Stage, multiple: int) -> None:
    model = [[(1024, 1024)]] * 6
    whole = 6 * 4 * 2**20
    around_a_ring = 3 * whole // 4
    if stage == 1:  # an all-reduce, and a broadcast of all
        assert zero.sent_bytes(stage, model, 4) == 2 * around_a_ring + whole
    else:
        assert zero.sent_bytes(stage, model, 4) == multiple * around_a_ring


def test_gradients_may_travel_in_another_dtype() -> None:
    model = [[(1024, 1024)]]
    quarter = 2**20 // 4
    # bfloat16 there twice, float32 back once: 3 x (2 + 2 + 4) B for each of a quarter
    assert zero.sent_bytes(3, model, 4, "bfloat16", "float32") == 3 * quarter * 8
    assert zero.sent_bytes(3, model, 1) == 0


def test_the_peak_of_a_chain_in_parts() -> None:
    # 4 layers of 1024 x 1024 on 4 ranks: shards of 1 MiB, layers of 4 MiB, rows of 4 KiB
    peak_bytes = 6 * MIB + 3 * 4 * MIB + 4 * MIB + 4 * 4096 + 2 * 512
    assert zero.chain_peak_bytes(3, 4, 1024, 4) == peak_bytes
    assert zero.chain_peak_bytes(3, 4, 1024, 4, torch_version=(2, 11)) == peak_bytes
    # The second layer's shard; two gradients of rows are gone.
    later_bytes = peak_bytes + MIB - 2 * 4096
    assert zero.chain_peak_bytes(3, 4, 1024, 4, torch_version=(2, 12)) == later_bytes
    # On 1024 ranks a shard is a row: that moment is no higher.
    alone_bytes = zero.chain_peak_bytes(3, 4, 1024, 1024)
    assert zero.chain_peak_bytes(3, 4, 1024, 1024, torch_version=(2, 12)) == alone_bytes


def test_the_copy_of_gathered_layers_takes_a_number_for_each_block() -> None:
    # As above, stage 2: 4 shards, rows, and 6 layers. 1 MiB from each of 4 ranks are 512 tiles,
    # 2048 in all; an A100 has room for 2 x 108 x 2048 / 128 = 3456. 8 x (5 + 512) B in blocks.
    peak_bytes = 4 * (MIB + 4096) + 6 * 4 * MIB
    assert zero.chain_peak_bytes(2, 4, 1024, 4) == peak_bytes + 4608
    # A T4 has room for 640: 4 tiles a block, 2 of each of 2 ranks. 8 x (5 + 256) B.
    assert zero.chain_peak_bytes(2, 4, 1024, 4, threads=40 * 1024) == peak_bytes + 2560


def test_since_2_15_one_layer_less_is_gathered_at_the_peak() -> None:
    # 4 layers, gathered; the all-gather of the last one is gone. In backward of the third there are
    # a shard of the last one's gradient, 1 MiB, instead, and 5 rows.
    peak_bytes = 4 * MIB + 5 * 4 * MIB + MIB + 5 * 4096 + 2 * 512
    assert zero.chain_peak_bytes(2, 4, 1024, 4, torch_version=(2, 15)) == peak_bytes
    # On 96 ranks shards are padded to 11 rows, which a gradient is not: the peak is in forward,
    # where the fifth layer puts out a row.
    shard_bytes = 4 * 11 * 1024
    peak_bytes = 5 * shard_bytes + 6 * 96 * shard_bytes + 6 * 4096
    assert zero.chain_peak_bytes(2, 5, 1024, 96, torch_version=(2, 15)) == peak_bytes
