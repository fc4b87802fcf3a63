"""The residual network's parts, and where it is cut."""

from __future__ import annotations

from vramlab_course.lessons.l14_gradient_checkpointing.residual_network_formulas import (
    NetworkPart,
    best_cuts,
    cuts_by_budget,
    forward_bytes,
    parts,
    planned_bytes,
    scaled_stages,
)


def test_stages_keep_the_examples_proportions() -> None:
    assert scaled_stages(66) == (3, 24, 36, 3)
    # 333 / 66 = 5.045: 15.1, 121.1, 181.6, 15.1; the one that is left over goes to the third
    assert scaled_stages(333) == (15, 121, 182, 15)


def test_the_parts_of_a_small_network() -> None:
    stem, block, head = parts((1,), batch=1)
    # 64 maps of 112 x 112, twice, and two statistics of 256 B; a place of 8 B for each of 64 x 56^2
    assert stem.inner_bytes == 2 * 64 * 112 * 112 * 4 + 2 * 512 + 64 * 56 * 56 * 8
    assert stem.result_bytes == 64 * 56 * 56 * 4
    maps = 56 * 56 * 4
    # units of 64, 64 and 256 channels, and of 256 beside them
    assert block.inner_bytes == 2 * (64 + 64 + 256 + 256) * maps + 4 * 512 + 4 * 1024
    assert block.result_bytes == 256 * maps
    assert (head.inner_bytes, head.result_bytes) == (256 * 4, 4096)  # 1000 scores in 512 B blocks


def test_later_stages_have_half_the_side() -> None:
    pieces = parts((1, 2), batch=1)
    assert pieces[2].result_bytes == pieces[3].result_bytes == 512 * 28 * 28 * 4
    # its first 1 x 1 convolution still works on 56 x 56
    assert pieces[2].inner_bytes - pieces[3].inner_bytes == (
        2 * 128 * (56 * 56 - 28 * 28) * 4 + 2 * 512 * 28 * 28 * 4 + 2 * 2048
    )


PIECES = [
    NetworkPart(10, 1),
    NetworkPart(10, 1),
    NetworkPart(10, 1),
    NetworkPart(10, 1),
    NetworkPart(2, 1),
]


def test_what_is_held_after_the_forward_pass() -> None:
    # 5 results and 42 inside, less the last block's result, which the head only averages
    assert forward_bytes(PIECES) == 5 + 42 - 1
    # a result before the cut, and the parts 2, 3, 4 as above
    assert forward_bytes(PIECES, [2]) == 1 + 10 + 10 + 2 + 3 - 1


def test_cuts_come_where_the_budget_is_used_up() -> None:
    assert cuts_by_budget(PIECES, 11) == [2, 4]
    assert cuts_by_budget(PIECES, 100) == []
    # two parts, then two with a result before them, then the head
    assert planned_bytes(PIECES, [2, 4]) == 1 + 22
    assert planned_bytes(PIECES, []) == 47


def test_the_best_cuts_are_no_worse_than_any_budget() -> None:
    pieces = parts((3, 24, 36, 3), batch=32)
    best = planned_bytes(pieces, best_cuts(pieces))
    whole = forward_bytes(pieces)
    assert best <= min(
        planned_bytes(pieces, cuts_by_budget(pieces, whole // n)) for n in (2, 9, 40)
    )
    assert best < whole / 5
