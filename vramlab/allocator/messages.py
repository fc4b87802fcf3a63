"""Messages of out-of-memory errors, in PyTorch's own words.

Source: `DeviceCachingAllocator::malloc` and `reportProcessMemoryInfo` in
c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.13.
"""

from __future__ import annotations

from vramlab.allocator.device_memory import DeviceMemory
from vramlab.units import format_bytes

TOO_LARGE_TO_LOOK_FOR = "CUDA out of memory. Tried to allocate more than 1EB memory."

_ADVICE = (
    "If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
    "See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
    "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
)

_SEGMENT_RESERVE = (
    "This allocation exceeds the expandable-segment reserve of {} for this stream, and a single "
    "allocation cannot span expandable segments. Raise PYTORCH_CUDA_ALLOC_CONF "
    "expandable_segments_reserve or expandable_segments_reserve_by_class (or unset it) so that a "
    "segment is at least {}."
)


def out_of_memory(
    *,
    device: int,
    memory: DeviceMemory,
    segment_bytes: int,
    allowed_bytes: int | None,
    allocated_bytes: int,
    reserved_bytes: int,
    private_free_bytes: int = 0,
    segment_reserve_bytes: int | None = None,
) -> str:
    """Word an out-of-memory error.

    Processes other than this one count as used, but are not listed: as in a container, where the
    driver does not report other processes.

    Args:
        device: the GPU's number.
        memory: its memory, as it is now.
        segment_bytes: what the driver was asked for.
        allowed_bytes: the limit that a memory fraction below 1 sets, if any.
        allocated_bytes, reserved_bytes: the allocator's.
        private_free_bytes: the free blocks of private pools, which PyTorch counts as allocated.
        segment_reserve_bytes: addresses of an expandable segment, if segments are expandable.
    """
    taken_bytes = allocated_bytes + private_free_bytes
    private = (
        f"with {format_bytes(private_free_bytes)} allocated in private pools (e.g., CUDA Graphs), "
        if private_free_bytes
        else ""
    )
    allowed = "" if allowed_bytes is None else f"{format_bytes(allowed_bytes)} allowed; "
    advice = _ADVICE
    if segment_reserve_bytes is not None and segment_bytes > segment_reserve_bytes:
        advice = _SEGMENT_RESERVE.format(*map(format_bytes, (segment_reserve_bytes, segment_bytes)))
    return (
        f"CUDA out of memory. Tried to allocate {format_bytes(segment_bytes)}. "
        f"GPU {device} has a total capacity of {format_bytes(memory.total_bytes)} "
        f"of which {format_bytes(memory.free_bytes)} is free. "
        f"Including non-PyTorch memory, this process has "
        f"{format_bytes(memory.used_by_process_bytes)} memory in use. "
        f"{allowed}"
        f"Of the allocated memory {format_bytes(taken_bytes)} is allocated by PyTorch, {private}"
        f"and {format_bytes(reserved_bytes - taken_bytes)} is reserved by PyTorch but "
        f"unallocated. {advice}"
    )
