"""Steps with few layers, extended to many: letters stand for events."""

from __future__ import annotations

import pytest

from vramlab.allocator import CachingAllocator, DeviceMemory
from vramlab.planner.events import REMAINDERS, STEP_BEGINS, BlockEvent, Events, moments, peak
from vramlab.planner.extension import Longer, NotRepeating, extend, repeated_runs
from vramlab.units import GIB, MIB


def events(letters: str) -> Events:
    return [BlockEvent(ord(letter), "activations", letter) for letter in letters]


def letters(found: Events) -> str:
    return "".join(event.place for event in found)


def extended(few: str, more: str, times: int) -> str:
    return letters(extend(events(few), [Longer(events(more), times)]))


@pytest.mark.parametrize(
    ("few", "more", "times", "many"),
    [
        ("a(bc)z", "a(bc)(bc)z", 3, "a(bc)(bc)(bc)(bc)z"),
        # The forward pass, and the backward pass.
        ("a12-34z", "a1212-3434z", 2, "a121212-343434z"),
        # The first and the last layer do something else.
        ("aFmLz-zlmfa", "aFmmLz-zlmmfa", 2, "aFmmmLz-zlmmmfa"),
        ("a12z", "a1212z", 0, "a12z"),
        ("aaaz", "aaaaz", 2, "aaaaaz"),
    ],
)
def test_what_a_layer_more_repeats_is_repeated_on(
    few: str, more: str, times: int, many: str
) -> None:
    assert extended(few, more, times) == many


@pytest.mark.parametrize(
    ("few", "more"),
    [
        ("a12z", "a1213z"),  # the new layer takes something else
        ("a12z", "a1212y"),  # what follows is something else
        ("a12z", "a112z1"),
        ("a1z", "a1212z"),
        ("a12z", "az"),  # a layer more does less
    ],
)
def test_what_is_no_repetition_is_refused(few: str, more: str) -> None:
    with pytest.raises(NotRepeating, match="is no repetition of what was before"):
        extended(few, more, 5)


def test_the_message_names_the_event() -> None:
    # "1" is the character 49.
    with pytest.raises(NotRepeating, match=r"event 3 of 6, 49 B at '1', is no repetition"):
        repeated_runs(events("a12z"), events("a1213z"))


def test_passes_repeat_with_all_their_layers() -> None:
    # Two layers, l; then a pass more, p to q, with as many layers; then both.
    step, deeper = events("apllqz"), events("aplllqz")
    twice = events("apllqpllqz")
    both = extend(step, [Longer(deeper, 2)], [Longer(twice, 2)])
    assert letters(both) == "a" + 3 * "pllllq" + "z"


def test_a_pass_that_repeats_what_is_not_in_the_shorter_step_is_refused() -> None:
    with pytest.raises(NotRepeating, match="is repeated in parts"):
        extend(events("abcd"), [], [Longer(events("abbcbbcd"), 1)])


def test_the_peak_moves_with_depth_and_is_found_where_it_is() -> None:
    def step(layers: int) -> Events:
        kept = [BlockEvent(10, "activations", "forward: layer")] * layers
        freed = [BlockEvent(-10, "activations", "forward: layer")] * layers
        loss = [BlockEvent(5, "temporaries", "backward: loss"), BlockEvent(-5, "temporaries", "")]
        states = [BlockEvent(4, "optimizer states", "held")] * layers
        update = [BlockEvent(9, "temporaries", "optimizer step: sqrt")] * layers
        return [*states, STEP_BEGINS, *kept, *loss, *freed, *update]

    many = extend(step(2), [Longer(step(3), 7)])
    assert many == step(9)
    # 9 x 4 + 9 x 10 + 5, of which 9 x 10 are freed before 9 x 9 are allocated.
    highest = max(moments(many).values(), key=lambda moment: moment.total_bytes)
    assert highest.total_bytes == 9 * 4 + 9 * 10 + 5
    assert highest.name == "backward: loss"
    largest = moments(many)
    assert list(largest) == ["forward: layer", "backward: loss", "optimizer step: sqrt"]
    assert largest["optimizer step: sqrt"].total_bytes == 9 * 4 + 9 * 9
    assert largest["forward: layer"].bytes_by_category["activations"] == 90


def test_the_peak_is_what_the_allocator_makes_of_the_blocks() -> None:
    def taken(size_bytes: int, which: int = 0) -> BlockEvent:
        return BlockEvent(size_bytes, "activations", "forward: mm", which=which)

    # Requests of 10 MiB and more have a segment of their own, of whole 2 MiB; 0.5 MiB are too
    # little to be split off. The oldest of the blocks alike is freed, and used again for 11 MiB.
    step = [taken(12 * MIB), taken(12 * MIB - MIB // 2), taken(12 * MIB)]
    freed = [taken(-12 * MIB, which=-1), taken(11 * MIB + MIB // 4)]
    found = peak([*step, STEP_BEGINS, *freed], CachingAllocator(DeviceMemory(GIB)))
    assert found.bytes_by_category["activations"] == 36 * MIB - MIB // 2
    assert found.bytes_by_category[REMAINDERS] == MIB // 2
    assert found.total_bytes == 36 * MIB


def test_a_later_step_may_find_blocks_that_the_first_two_have_left() -> None:
    sizes = (24, -24, 11, 13, 14, -13, -11, -14)  # MiB
    step = [BlockEvent(size * MIB, "temporaries", "forward: mm") for size in sizes]
    found = peak([*step, STEP_BEGINS, *step], CachingAllocator(DeviceMemory(GIB)))
    # First 11 and 13 lie in 24, and 14 has a segment of its own; then 11 lies in those 14, 13 in
    # 24, and 14 has a second segment. The third step has 13 in 14: 1 MiB is not split off.
    assert found.bytes_by_category["temporaries"] == (11 + 13 + 14) * MIB
    assert found.bytes_by_category[REMAINDERS] == MIB
    # What leaves a block behind in each step is not repeated: its buckets may not come again.
    kept = BlockEvent(MIB, "gradients", "backward: all_reduce")
    found = peak([*step, STEP_BEGINS, *step, kept], CachingAllocator(DeviceMemory(GIB)))
    assert found.total_bytes == (11 + 13 + 14) * MIB
