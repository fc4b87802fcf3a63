"""What changes to a program free, in traces whose every byte is known."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from vramlab.allocator import AllocatorSettings, CachingAllocator, DeviceMemory, snapshot
from vramlab.errors import OutOfDeviceMemory
from vramlab.explaining.explanation import explain_snapshot
from vramlab.explaining.layout import segments_at
from vramlab.explaining.remedies import Remedy, remedies
from vramlab.explaining.shown import imbalance
from vramlab.explaining.traces import GPUTrace, read_gpus
from vramlab.units import GIB, MIB


def stack(line: int, function: str = "linear") -> list[dict[str, Any]]:
    library = "/env/lib/python3.11/site-packages/torch/nn/functional.py"
    return [
        {"filename": library, "line": 1, "name": function},
        {"filename": "/home/me/train/model.py", "line": line, "name": "forward"},
    ]


def recorded(program: Callable[[CachingAllocator], None]) -> dict[str, Any]:
    allocator = CachingAllocator(DeviceMemory(GIB), AllocatorSettings())
    allocator.record_history()
    program(allocator)
    return snapshot([allocator])


def the_gpu(program: Callable[[CachingAllocator], None]) -> GPUTrace:
    (gpu,) = read_gpus(recorded(program))
    return gpu


def test_an_activation_in_place_reuses_its_input() -> None:
    def program(allocator: CachingAllocator) -> None:
        hidden = allocator.malloc(40 * MIB, context=stack(1))
        active = allocator.malloc(40 * MIB, context=stack(2, "relu"))
        allocator.free(hidden, context=stack(3))
        allocator.free(active, context=stack(3))
        allocator.malloc(MIB, context=stack(4))

    (remedy,) = remedies(the_gpu(program))
    change = "inplace=True at train/model.py:2 forward, if nothing else needs its input"
    assert remedy == Remedy(change, 40 * MIB, 40 * MIB)  # 40 + 40 before


def test_checkpointing_keeps_one_layer() -> None:
    backward = [{"filename": "engine.cpp", "name": "ReluBackward0::apply", "line": 1}]

    def program(allocator: CachingAllocator) -> None:
        saved = []
        for _ in range(4):
            saved.append(allocator.malloc(10 * MIB, context=stack(1)))
            saved.append(allocator.malloc(30 * MIB, context=stack(2)))
        for block in reversed(saved):
            gradient = allocator.malloc(2 * MIB, context=backward)
            allocator.free(block, context=backward)
            allocator.free(gradient, context=backward)

    (remedy,) = remedies(the_gpu(program))
    # The peak is 4 * 40 + 2. The inputs of four layers, what one of them keeps, and 2 remain.
    change = "activation checkpointing, one of 4 layers at a time"
    assert remedy == Remedy(change, 3 * 30 * MIB, (4 * 10 + 30 + 2) * MIB)


def test_layers_of_many_sizes_are_checkpointed() -> None:
    """None of sixty sizes has 2 % of all bytes."""
    sizes = range(60)
    sizes_bytes = [MIB + 1024 * size for size in sizes]

    def program(allocator: CachingAllocator) -> None:
        for _ in range(2):
            for line, size_bytes in enumerate(sizes_bytes):
                allocator.malloc(size_bytes, context=stack(line))

    checkpointing = next(
        each for each in remedies(the_gpu(program)) if "checkpointing" in each.change
    )
    # The smallest is taken for what a layer begins with, and stays. Of one layer, all stay.
    assert checkpointing.freed_bytes == sum(sizes_bytes[1:])


def test_advice_names_the_changes_after_which_the_failed_request_succeeds() -> None:
    def program(allocator: CachingAllocator) -> None:
        for _ in range(9):
            allocator.malloc(20 * MIB, context=stack(1))
            allocator.malloc(80 * MIB, context=stack(3))
        with suppress(OutOfDeviceMemory):
            allocator.malloc(300 * MIB, context=stack(2))

    report = str(explain_snapshot(recorded(program), "snapshot.pickle"))
    advice = report[report.index("What would help") :]
    # Without gradients, the request and its input of 80 MiB: 1,024 - 300 - 80 MiB are left.
    assert (
        "torch.no_grad(), if no backward pass follows: the request fits, with 0.63 GiB to spare"
        in advice
    )
    # Of nine layers the inputs, of the last one all, and the request: 1,024 - 9 * 20 - 80 - 300.
    assert (
        "one of 9 layers at a time, if a backward pass follows: the request fits, with 0.45"
        in advice
    )


def test_the_old_value_of_a_rebound_name_may_go_first() -> None:
    def program(allocator: CachingAllocator) -> None:
        value = allocator.malloc(20 * MIB, context=stack(5))
        for _ in range(3):
            new = allocator.malloc(20 * MIB, context=stack(5))
            allocator.free(value, context=stack(5, "free"))
            value = new

    (remedy,) = remedies(the_gpu(program))
    change = "del of the old value before train/model.py:5 forward"
    assert remedy == Remedy(change, 20 * MIB, 20 * MIB)  # two of 20 before


def test_a_change_that_leaves_the_peak_is_not_named() -> None:
    def program(allocator: CachingAllocator) -> None:
        hidden = allocator.malloc(40 * MIB, context=stack(1))
        active = allocator.malloc(40 * MIB, context=stack(2, "relu"))
        allocator.free(hidden, context=stack(3))
        allocator.malloc(40 * MIB, context=stack(4))
        allocator.free(active, context=stack(5))
        allocator.malloc(MIB, context=stack(6))

    assert remedies(the_gpu(program)) == []  # in place or not, 80 MiB at the fourth line


def test_attention_scores_are_not_saved_by_a_fused_kernel() -> None:
    backward = [{"filename": "engine.cpp", "name": "SoftmaxBackward0::apply", "line": 1}]

    def program(allocator: CachingAllocator) -> None:
        scores = allocator.malloc(30 * MIB, context=stack(1, "softmax"))
        hidden = allocator.malloc(10 * MIB, context=stack(2))
        gradient = allocator.malloc(MIB, context=backward)
        for block in (scores, hidden, gradient):
            allocator.free(block, context=backward)

    fused = next(each for each in remedies(the_gpu(program)) if "scaled_dot" in each.change)
    assert (fused.freed_bytes, fused.peak_bytes) == (30 * MIB, 11 * MIB)  # 30 + 10 + 1 before


def test_a_line_that_pins_a_segment_is_named() -> None:
    def program(allocator: CachingAllocator) -> None:
        # A segment of 20 MiB serves requests below 10 MiB.
        first = allocator.malloc(9 * MIB, context=stack(1))
        allocator.malloc(2 * MIB, context=stack(2))
        allocator.free(first, context=stack(3))
        allocator.malloc(32 * MIB, context=stack(4))

    shown = recorded(program)
    (gpu,) = read_gpus(shown)
    assert not segments_at(gpu, 0)
    at_the_end = segments_at(gpu, len(gpu.events)).values()
    assert sorted(segment.size_bytes for segment in at_the_end) == [20 * MIB, 32 * MIB]
    (explained,) = explain_snapshot(shown, "x").gpus
    (pin,) = explained.pins
    assert (pin.line, pin.segments) == ("train/model.py:2 forward", 1)
    assert (pin.free_bytes, pin.held_bytes) == (18 * MIB, 2 * MIB)  # 20 - 2


def test_gpus_that_differ_are_said_to() -> None:
    def small(allocator: CachingAllocator) -> None:
        allocator.malloc(20 * MIB, context=stack(1))

    def large(allocator: CachingAllocator) -> None:
        allocator.malloc(60 * MIB, context=stack(1))

    compared = [
        (name, explain_snapshot(recorded(program), name).gpus[0])
        for name, program in (("rank0", small), ("rank1", large))
    ]
    assert "rank1 has 1.5 times the average" in imbalance(compared)  # 60 / ((20 + 60) / 2)
    assert "average" not in imbalance(compared[:1] * 2)
