"""A model of PyTorch's CUDA caching allocator, to the byte. It imports no torch.

For example::

    memory = DeviceMemory(16 * GIB)
    allocator = CachingAllocator(memory, AllocatorSettings.parse("max_split_size_mb:128"))
    block = allocator.malloc(3 * MIB)
    allocator.reserved_bytes     # 20 MiB: a segment of the large pool
    allocator.free(block)
    snapshot([allocator])        # what torch.cuda.memory._snapshot() shows
"""

from vramlab.allocator.blocks import Block, Precedence, Segment, precedence_of
from vramlab.allocator.caching import CachingAllocator
from vramlab.allocator.device_memory import DeviceMemory
from vramlab.allocator.history import AllocatorEvent
from vramlab.allocator.settings import AllocatorSettings
from vramlab.allocator.snapshots import segments, snapshot, traces
from vramlab.cuda_rules.sizes import round_request, segment_size

__all__ = [
    "AllocatorEvent",
    "AllocatorSettings",
    "Block",
    "CachingAllocator",
    "DeviceMemory",
    "Precedence",
    "Segment",
    "precedence_of",
    "round_request",
    "segment_size",
    "segments",
    "snapshot",
    "traces",
]
