"""Out-of-memory messages in every layout since PyTorch 1.4, in logs as people have them."""

from __future__ import annotations

import pytest

from vramlab import VirtualGPU
from vramlab.explaining.message import (
    Reading,
    find_messages,
    picture,
    reading,
)
from vramlab.units import GIB, MIB

OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 3.00 GiB (GPU 1; 16.00 GiB total "
    "capacity; 13.00 GiB already allocated; 1.50 GiB free; 13.75 GiB reserved in total by PyTorch)"
)
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 16.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process "
    "has 15.00 GiB memory in use. Of the allocated memory 11.00 GiB is allocated by PyTorch, and "
    "3.50 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large "
    "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)


def the_message(text: str):  # type: ignore[no-untyped-def]
    (found,) = find_messages(text)
    return found


def test_1_4_has_capacity_allocated_free_and_reserved() -> None:
    found = the_message(OLD)
    assert (found.requested_bytes, found.device) == (3 * GIB, 1)
    assert (found.total_bytes, found.free_bytes) == (16 * GIB, 3 * GIB // 2)
    assert (found.allocated_bytes, found.reserved_bytes) == (13 * GIB, 55 * GIB // 4)
    assert found.cached_bytes == 3 * GIB // 4  # 13.75 - 13
    assert found.allowed_bytes is None
    assert not found.knows_own
    assert found.torch_version == "1.4 to 2.0"


def test_2_2_lists_processes() -> None:
    text = NEW.replace("Including", "Process 41 has 512.00 MiB memory in use. Including")
    found = the_message(text)
    assert found.processes_bytes == ((41, 512 * MIB),)
    assert found.this_process_bytes == found.own_bytes == 15 * GIB
    assert found.reserved_bytes == 29 * GIB // 2  # 11 + 3.5
    assert found.torch_version == "2.2 or later"


def test_2_13_has_private_pools() -> None:
    text = NEW.replace(
        "by PyTorch, and",
        "by PyTorch, with 96.00 MiB allocated in private pools (e.g., CUDA Graphs), and",
    )
    assert the_message(text).private_pools_bytes == 96 * MIB


def test_2_15_has_the_reserve_of_expandable_segments() -> None:
    text = NEW.replace(
        " If reserved",
        " This allocation exceeds the expandable-segment reserve of 1.00 GiB for this stream, and",
    )
    found = the_message(text)
    assert found.segment_reserve_bytes == GIB
    assert reading(found) is Reading.SEGMENT_RESERVE


def test_cuda_malloc_async_has_its_own_layout() -> None:
    found = the_message(
        "OutOfMemoryError: Allocation on device 2 would exceed allowed memory. (out of memory)\n"
        "Currently allocated     : 9.00 GiB\nRequested               : 2.00 GiB\n"
        "Device limit            : 10.00 GiB\nFree (according to CUDA): 512.00 MiB\n"
        "PyTorch limit (set by user-supplied memory fraction)\n"
        "                        : 17179869184.00 GiB"
    )
    assert (found.device, found.allocated_bytes) == (2, 9 * GIB)
    assert (found.allowed_bytes, found.reserved_bytes) == (None, None)  # 2**64 bytes: no limit


@pytest.mark.parametrize("requested", ["512 bytes", "64.00 KiB", "20.00 MiB", "2.00 GiB"])
def test_every_unit_is_read(requested: str) -> None:
    sizes = {"512 bytes": 512, "64.00 KiB": 65536, "20.00 MiB": 20 * MIB, "2.00 GiB": 2 * GIB}
    found = the_message(NEW.replace("allocate 2.00 GiB", f"allocate {requested}"))
    assert found.requested_bytes == sizes[requested]


def test_what_the_virtual_gpu_raises_is_read() -> None:
    import torch

    with VirtualGPU("T4"), pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(64 * GIB, dtype=torch.uint8, device="cuda")
    found = the_message(str(caught.value))
    assert (found.requested_bytes, found.device) == (64 * GIB, 0)
    assert reading(found) is Reading.LARGER_THAN_GPU


def wrapped(text: str, width: int) -> str:
    return "\n".join(text[i : i + width] for i in range(0, len(text), width))


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[rank3]: ", "rank3"),
        ("[default3]:", "rank3"),
        ("[1,3]<stderr>:", "rank3"),
        ("[1,3]<stderr>: ", "rank3"),
        ("3: ", "rank3"),
        ("2026-01-31 12:00:00,123 ERROR [rank3]: ", "rank3"),
        ("[rank3]:[2026-01-31 12:00:00] ", "rank3"),
        ("\x1b[36m(TrainWorker pid=77, ip=10.0.0.1)\x1b[0m ", "TrainWorker pid=77, ip=10.0.0.1"),
        ("2026-01-31T12:00:00Z ", ""),
        ("E       ", ""),
        ("| ", ""),
    ],
)
def test_prefixes_are_taken_off_every_line(prefix: str, rank: str) -> None:
    text = "\n".join(prefix + line for line in wrapped(NEW, 60).splitlines())
    found = the_message(text)
    assert found == the_message(NEW)
    assert found.ranks == ((rank,) if rank else ())


def test_ranks_whose_lines_are_mixed_come_apart() -> None:
    other = NEW.replace("2.00 GiB. GPU 0", "1.25 GiB. GPU 1")
    pairs = zip(wrapped(NEW, 50).splitlines(), wrapped(other, 50).splitlines(), strict=True)
    text = "\n".join(f"[rank0]: {a}\n[rank1]: {b}" for a, b in pairs)
    first, second = find_messages(f"starting\n{text}")
    assert (first.ranks, first.device, first.requested_bytes) == (("rank0",), 0, 2 * GIB)
    assert (second.ranks, second.device, second.requested_bytes) == (("rank1",), 1, 5 * GIB // 4)
    assert (first.line, second.line) == (2, 3)


def test_a_message_that_comes_again_is_counted() -> None:
    first, second = find_messages(f"{NEW}\n{OLD}\n[rank1]: {NEW}\n")
    assert (first.times, first.ranks, first.line) == (2, ("rank1",), 1)
    assert (second.times, second.device, second.line) == (1, 1, 2)


def test_a_cut_off_message_gives_what_it_has() -> None:
    found = the_message(NEW[: NEW.index(", and 3.50")])
    assert (found.allocated_bytes, found.reserved_bytes) == (11 * GIB, None)


def test_a_request_above_the_capacity_is_larger_than_the_gpu() -> None:
    found = the_message(NEW.replace("allocate 2.00", "allocate 20.00"))
    assert reading(found) is Reading.LARGER_THAN_GPU


def test_a_memory_fraction_is_a_limit() -> None:
    # 12 GiB are free, and 2 are asked for.
    text = NEW.replace("which 1.00", "which 12.00").replace("Of the", "4.00 GiB allowed; Of the")
    assert reading(the_message(text)) is Reading.LIMIT


def test_a_cache_that_would_have_sufficed_is_fragmentation() -> None:
    # Missing: 2 - 1 = 1 GiB; cached: 3.5 GiB.
    assert reading(the_message(NEW)) is Reading.FRAGMENTATION


def test_without_a_cache_the_program_fills_the_gpu() -> None:
    # Missing: 1 GiB; cached: 0.5 GiB; not listed: 16 - 1 - 15 = 0.
    text = NEW.replace("11.00 GiB is", "14.00 GiB is").replace("3.50", "0.50")
    assert reading(the_message(text)) is Reading.FULL


def test_other_processes_are_what_no_entry_of_this_one_covers() -> None:
    text = NEW.replace("has 15.00", "has 9.00").replace("11.00 GiB is", "8.00 GiB is")
    text = text.replace("3.50", "0.25").replace(
        "Including", "Process 7 has 6.00 GiB memory in use. Including"
    )
    found = the_message(text)
    assert found.others_bytes == 6 * GIB  # 16 - 1 free - 9
    assert reading(found) is Reading.OTHER_PROCESSES
    two = find_messages(f"[rank0]: {text}\n[rank1]: {text.replace('2.00 GiB.', '1.75 GiB.')}")
    assert [reading(each, two) for each in two] == [Reading.ANOTHER_RANK, Reading.ANOTHER_RANK]


def test_in_a_container_the_entry_closest_above_reserved_is_this_process() -> None:
    text = NEW.replace("Including non-PyTorch memory, this process", "Process 900")
    found = the_message(text)
    assert found.knows_own
    assert found.own_bytes == 15 * GIB
    assert found.others_bytes == 0


def test_the_old_layout_leaves_room_for_a_context() -> None:
    # 16 - 1.5 free - 13.75 reserved = 0.75 GiB: a context (up to 0.63) and less than another one.
    assert the_message(OLD).others_bytes == 3 * GIB // 4
    assert reading(the_message(OLD)) is Reading.FULL


def test_the_picture_is_in_proportion() -> None:
    bar, asked, *_ = picture(the_message(NEW))
    # 60 characters for 16 GiB: 11 -> 41, 3.5 -> 13, 0.5 of the process -> 2, 1 free -> 4.
    assert bar == f"  [{'#' * 41}{'=' * 13}{'+' * 2}{'.' * 4}] 16.00 GiB"
    assert asked == "   " + ">" * 8  # 2 / 16 of 60, rounded up
