"""Programs of random requests for the caching allocator, under each of its settings.

A program has a limit of `LIMIT_BYTES`, so that it runs out of memory, retries and frees its cache
as a program on a full GPU does. It depends on its seed alone: every GPU, real or virtual, gets the
same requests.
"""

from __future__ import annotations

import random
from contextlib import suppress

import torch

from vramlab.gpu.torch_internals import set_allocator_settings
from vramlab.measure import Result, Stages
from vramlab.units import KIB, MIB

LIMIT_BYTES = 600 * MIB

PROGRAMS = {
    "defaults": "",
    "expandable-segments": "expandable_segments:True",
    "max-split-size": "max_split_size_mb:40",
    "max-non-split-rounding": "max_split_size_mb:64,max_non_split_rounding_mb:36",
    "garbage-collection": "garbage_collection_threshold:0.6",
    "roundup": "roundup_power2_divisions:4",
    "several": (
        "expandable_segments:True,garbage_collection_threshold:0.6,"
        "roundup_power2_divisions:[256:1,512:2,>:4]"
    ),
}
"""The settings of each program, by name."""

_STAGES, _STEPS = 4, 150
_HELD = 24
_SIZES_BYTES = (512, 600 * KIB, MIB, 2 * MIB, 9 * MIB, 10 * MIB, 19 * MIB, 40 * MIB, 70 * MIB)


def run(name: str) -> Result:
    """Make the requests of a program on the attached GPU, in stages.

    Raises:
        KeyError: there is no such program.
    """
    settings = PROGRAMS[name]
    rng = random.Random(name)
    total_bytes = torch.cuda.get_device_properties(0).total_memory
    set_allocator_settings(settings)
    torch.cuda.set_per_process_memory_fraction(LIMIT_BYTES / total_bytes)
    streams = torch.cuda.default_stream(), torch.cuda.Stream()
    held: list[torch.Tensor] = []
    stages = Stages(name)
    for number in range(_STAGES):
        with stages.stage(f"requests {number + 1}"):
            for _ in range(_STEPS):
                _step(rng, streams, held)
    return stages.result()


def _step(
    rng: random.Random, streams: tuple[torch.cuda.Stream, ...], held: list[torch.Tensor]
) -> None:
    """Allocate, or free, or empty the cache."""
    action = rng.random()
    if action < 0.01:
        torch.cuda.empty_cache()
    elif held and action < 0.2 + len(held) / _HELD / 2:
        _free(held.pop(rng.randrange(len(held))), streams, is_shared=rng.random() < 0.2)
    else:
        size_bytes = max(1, rng.choice(_SIZES_BYTES) + rng.randrange(-600, 600))
        with torch.cuda.stream(rng.choice(streams)), suppress(torch.OutOfMemoryError):
            held.append(torch.empty(size_bytes, dtype=torch.uint8, device="cuda"))


def _free(tensor: torch.Tensor, streams: tuple[torch.cuda.Stream, ...], is_shared: bool) -> None:
    """Free a tensor, some after another stream has used it; the GPU is done before it goes on."""
    if is_shared:
        for stream in streams:
            tensor.record_stream(stream)
    del tensor
    torch.cuda.synchronize()
