"""Snapshots and history, in the form that torch's own tools read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from vramlab.allocator import AllocatorEvent, Block, CachingAllocator, segments, snapshot, traces
from vramlab.errors import AllocatorInvariantError, OutOfDeviceMemory
from vramlab.units import GIB, MIB

MakeAllocator = Callable[..., CachingAllocator]

HERE = [{"filename": "train.py", "line": 7, "name": "step"}]
THERE = [{"filename": "train.py", "line": 9, "name": "zero_grad"}]


def actions(allocator: CachingAllocator) -> list[str]:
    return [entry["action"] for entry in traces(allocator)]


def test_a_segment_and_its_blocks_have_torchs_keys(allocator: CachingAllocator) -> None:
    block = allocator.malloc(19 * MIB, stream=5, context=HERE)
    assert segments(allocator) == [
        {
            "device": 0,
            "address": block.address,
            "total_size": 20 * MIB,
            "allocated_size": 20 * MIB,
            "active_size": 20 * MIB,
            "requested_size": 19 * MIB,
            "stream": 5,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": HERE,
            "blocks": [
                {
                    "address": block.address,
                    "size": 20 * MIB,
                    "requested_size": 19 * MIB,
                    "state": "active_allocated",
                    "frames": HERE,
                }
            ],
        }
    ]


def test_segments_are_listed_by_address(allocator: CachingAllocator) -> None:
    for size in (64, 96, 128):
        allocator.malloc(size * MIB)
    # The driver hands out large memory from the top down: the newest lies lowest.
    assert [segment["total_size"] for segment in segments(allocator)] == [
        128 * MIB,
        96 * MIB,
        64 * MIB,
    ]


def test_nothing_is_recorded_unless_asked_for(allocator: CachingAllocator) -> None:
    allocator.free(allocator.malloc(512))
    assert traces(allocator) == []


def test_the_history_of_a_block(allocator: CachingAllocator) -> None:
    allocator.record_history()
    block = allocator.malloc(700, stream=2, context=HERE)
    address = block.address
    allocator.record_stream(block, 1)
    allocator.free(block, context=THERE)
    allocator.empty_cache()
    common = {"stream": 2, "compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0)}
    expected = [
        ("segment_alloc", 2 * MIB, HERE),
        ("alloc", 700, HERE),
        ("free_requested", 700, THERE),
        ("free_completed", 700, HERE),
        ("segment_free", 2 * MIB, None),  # split, a segment forgets who made it, as in PyTorch
    ]
    assert traces(allocator) == [
        {"action": action, "addr": address, "size": size, "time_us": time}
        | common
        | ({"frames": frames} if frames else {})
        for time, (action, size, frames) in enumerate(expected)
    ]


def test_the_history_of_an_expandable_segment(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator("expandable_segments:True")
    allocator.record_history(context=None)
    allocator.free(allocator.malloc(30 * MIB, context=HERE))
    allocator.empty_cache()
    assert [(entry["action"], entry["size"]) for entry in traces(allocator)] == [
        ("segment_map", 40 * MIB),
        ("alloc", 30 * MIB),
        ("free_requested", 30 * MIB),
        ("free_completed", 30 * MIB),
        ("segment_unmap", 40 * MIB),
    ]
    assert all("frames" not in entry for entry in traces(allocator))


def test_an_oom_tells_what_the_driver_had_left(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator(total_bytes=30 * MIB)
    allocator.record_history()
    with pytest.raises(OutOfDeviceMemory):
        allocator.malloc(31 * MIB)
    (entry,) = traces(allocator)
    assert (entry["action"], entry["device_free"], entry["size"]) == ("oom", 30 * MIB, 31 * MIB)
    assert "addr" not in entry


def test_taking_a_snapshot_is_recorded_after_the_fact(allocator: CachingAllocator) -> None:
    allocator.record_history()
    allocator.malloc(700)
    assert [entry["action"] for entry in snapshot([allocator])["device_traces"][0]] == [
        "segment_alloc",
        "alloc",
    ]
    last = traces(allocator)[-1]
    assert (last["action"], last["addr"], last["size"]) == ("snapshot", 0, 1024)


def test_only_the_last_entries_are_kept(allocator: CachingAllocator) -> None:
    allocator.record_history(max_entries=3)
    allocator.free(allocator.malloc(700))
    assert actions(allocator) == ["alloc", "free_requested", "free_completed"]


def test_state_alone_keeps_stacks_of_blocks_but_one_entry(allocator: CachingAllocator) -> None:
    allocator.record_history("state", context="state")
    allocator.malloc(700, context=HERE)
    assert [entry["action"] for entry in traces(allocator)] == ["alloc"]
    assert "frames" not in traces(allocator)[0]
    assert segments(allocator)[0]["blocks"][0]["frames"] == HERE


def test_actions_can_be_skipped(allocator: CachingAllocator) -> None:
    allocator.record_history(skip_actions=["segment_alloc", "free_requested", "no such action"])
    allocator.free(allocator.malloc(700))
    assert actions(allocator) == ["alloc", "free_completed"]


def test_clearing_and_stopping_forget_what_was_recorded(allocator: CachingAllocator) -> None:
    allocator.record_history()
    allocator.malloc(700)
    allocator.record_history(context="alloc")
    assert actions(allocator) == ["segment_alloc", "alloc"]
    allocator.record_history(clear_history=True)
    assert actions(allocator) == []
    allocator.malloc(700)
    allocator.record_history(None)
    assert actions(allocator) == []
    assert not allocator.history.active


def test_metadata_is_put_on_what_follows(allocator: CachingAllocator) -> None:
    allocator.record_history(skip_actions=["segment_alloc"])
    allocator.malloc(700)
    allocator.history.user_metadata = "step 2"
    allocator.malloc(700)
    assert [entry["user_metadata"] for entry in traces(allocator)] == ["", "step 2"]


def test_two_gpus_share_one_snapshot(make_allocator: MakeAllocator) -> None:
    gpus = [make_allocator(device=device) for device in (0, 1)]
    gpus[1].record_history()
    for gpu in gpus:
        gpu.malloc(2 * MIB)
    taken = snapshot(gpus)
    assert [segment["device"] for segment in taken["segments"]] == [0, 1]
    assert [len(trace) for trace in taken["device_traces"]] == [0, 2]
    assert taken["external_annotations"] == []


def test_the_settings_are_shown(make_allocator: MakeAllocator) -> None:
    text = "max_split_size_mb:128,roundup_power2_divisions:[2:4]"
    shown = snapshot([make_allocator(text)])["allocator_settings"]
    assert shown["PYTORCH_CUDA_ALLOC_CONF"] == text
    assert shown["max_split_size"] == 128 * MIB
    assert shown["expandable_segments"] is False
    assert shown["roundup_power2_divisions"] == {
        str(2**interval): 4 if interval < 2 else 0 for interval in range(16)
    }


def test_contexts_become_frames_only_when_shown(allocator: CachingAllocator) -> None:
    allocator.record_history()
    allocator.malloc(700, context="a code object, say")

    def to_frames(context: Any) -> list[dict[str, Any]]:
        return [{"filename": context, "line": 1, "name": "f"}]

    taken = snapshot([allocator], to_frames=to_frames)
    frames = [{"filename": "a code object, say", "line": 1, "name": "f"}]
    assert taken["segments"][0]["blocks"][0]["frames"] == frames
    assert taken["device_traces"][0][1]["frames"] == frames


@pytest.fixture
def busy_snapshot(make_allocator: MakeAllocator) -> dict[str, Any]:
    """Two GPUs with free, waiting and used blocks of all kinds, and a history of all actions."""
    gpus = [
        make_allocator(settings, total_bytes=GIB, device=device)
        for device, settings in enumerate(["", "expandable_segments:True"])
    ]
    for gpu in gpus:
        gpu.record_history()
        sizes = (700, MIB, 3 * MIB, 45 * MIB, 30 * MIB, 70 * MIB)
        blocks: list[Block] = [gpu.malloc(size, context=HERE) for size in sizes]
        gpu.free(blocks[3], context=THERE)
        gpu.empty_cache()
        gpu.record_stream(blocks[4], 1)
        gpu.free(blocks[4])
        with pytest.raises(OutOfDeviceMemory):
            gpu.malloc(2 * GIB)
        gpu.free(blocks[0])
        gpu.record_stream(blocks[1], 1)
        gpu.free(blocks[1])
    snapshot(gpus)
    return snapshot(gpus)


class TestTorchsOwnTools:
    """torch/cuda/_memory_viz.py must read what we write, and its own checks must hold."""

    @pytest.fixture
    def viz(self) -> Any:
        return pytest.importorskip("torch.cuda._memory_viz")

    def test_the_history_has_every_action(self, busy_snapshot: dict[str, Any]) -> None:
        seen = {e["action"] for trace in busy_snapshot["device_traces"] for e in trace}
        assert seen == {
            "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
            "segment_map", "segment_unmap", "oom", "snapshot",
        }  # fmt: skip

    def test_trace_tells_the_story(self, viz: Any, busy_snapshot: dict[str, Any]) -> None:
        story = viz.trace(busy_snapshot)
        assert "raise OutOfMemoryError # 2.0GiB requested" in story
        assert story.count("Device ") == 2

    def test_flame_graphs_account_for_every_byte(
        self, viz: Any, busy_snapshot: dict[str, Any]
    ) -> None:
        lines = viz.memory(busy_snapshot, format_flamegraph=str).splitlines()
        assert any("train.py:7:step" in line for line in lines)
        reserved = sum(segment["total_size"] for segment in busy_snapshot["segments"])
        assert sum(int(line.rpartition(" ")[2]) for line in lines) == reserved
        assert viz.segments(busy_snapshot, format_flamegraph=str).count("\n") == len(lines)


class TestTrackers:
    def test_they_hear_of_everything_without_any_history(self, allocator: CachingAllocator) -> None:
        heard: list[AllocatorEvent] = []
        allocator.add_trace_tracker(heard.append)
        allocator.free(allocator.malloc(700))
        assert [event.action for event in heard] == [
            "segment_alloc",
            "alloc",
            "free_requested",
            "free_completed",
        ]
        assert traces(allocator) == []

    def test_a_block_freed_from_within_is_freed_right_after(
        self, allocator: CachingAllocator
    ) -> None:
        """As when the garbage collector runs a tensor's finalizer inside the allocator."""
        garbage = [allocator.malloc(700), allocator.malloc(3 * MIB)]
        allocator.add_trace_tracker(
            lambda event: allocator.free(garbage.pop()) if garbage else None
        )
        allocator.malloc(30 * MIB)
        assert allocator.allocated_bytes == 30 * MIB

    @pytest.mark.parametrize("purpose", ["allocate 512 bytes", "empty the cache or synchronize"])
    def test_nothing_else_can_be_done_from_within(
        self, allocator: CachingAllocator, purpose: str
    ) -> None:
        refusals: list[str] = []

        def finalizer(event: AllocatorEvent) -> None:
            try:
                if purpose == "allocate 512 bytes":
                    allocator.malloc(512)
                else:
                    allocator.empty_cache()
            except AllocatorInvariantError as error:  # from a finalizer Python would only print it
                refusals.append(str(error))

        allocator.free(allocator.malloc(700))
        allocator.add_trace_tracker(finalizer)
        allocator.malloc(700)
        assert refusals == [
            f"a finalizer, tracker or observer that ran inside the allocator tried to {purpose}; "
            "there it may free memory, but nothing else"
        ]


def test_threads_take_turns(allocator: CachingAllocator) -> None:
    def work(seed: int) -> None:
        mine = []
        for step in range(300):
            mine.append(allocator.malloc((seed * 7919 + step * 104729) % (3 * MIB) + 1))
            if step % 3:
                allocator.free(mine.pop(step % len(mine)))
        for block in mine:
            allocator.free(block)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert allocator.allocated_bytes == 0
    assert allocator.stats()["allocation"]["all"]["allocated"] == 4 * 300
