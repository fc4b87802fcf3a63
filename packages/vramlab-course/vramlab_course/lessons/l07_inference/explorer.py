"""Explore what a cache of keys and values takes beside a model's weights, and what fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch

from vramlab import VirtualGPU, catalogue
from vramlab.cuda_rules.sizes import ITEM_BYTES
from vramlab.measure import Table
from vramlab.units import format_mib, short_size
from vramlab_course.formulas.kv_cache import KVCache
from vramlab_course.plots import draw_stack
from vramlab_course.widgets.controls import choice, powers, slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import any_gpu, gpu_choice

DTYPES = ("float16", "bfloat16", "float32")
_LARGEST_WEIGHT_BYTES = 256 * 2**20
_FEW = ("A100-40GB", "A100-80GB", "H100", "H200", "RTX-3090", "RTX-4090", "T4")
_GPUS = gpu_choice(*_FEW, others=any_gpu)


@dataclass(frozen=True)
class CacheMemory:
    """What a model's weights and its cache take on one GPU."""

    weights_bytes: int
    cache_bytes: int
    """The whole cache, or as much of it as was there when memory ran out."""
    fits: bool
    """Whether all of it, and one more token, found room."""
    free_for_cache_bytes: int
    """What is left for a cache beside the weights."""


@explorer("A cache of keys and values, and what fits")
def kv_cache_explorer(
    layers: Annotated[int, slider("Layers", 1, 96)] = 32,
    heads: Annotated[int, powers("Query heads", 1, 128)] = 32,
    kv_heads: Annotated[int, powers("Key-value heads", 1, 128)] = 8,
    head_size: Annotated[int, powers("Head size", 32, 256)] = 128,
    length: Annotated[int, powers("Tokens", 128, 131072), "tokens in the cache"] = 8192,
    batch: Annotated[int, powers("Batch", 1, 256), "prompts at once"] = 1,
    beams: Annotated[int, slider("Beams", 1, 16), "sequences for each prompt"] = 1,
    dtype: Annotated[str, choice("dtype", DTYPES), "of weights and cache"] = "float16",
    gpu: Annotated[str, _GPUS, "a GPU of the catalogue"] = "RTX-4090",
) -> View:
    """Show weights and cache of a decoder-only transformer against a GPU's memory.

    Both are allocated. The sizes at first are those of an 8-billion-parameter Llama.
    """
    if kv_heads > heads or heads % kv_heads:
        raise ValueError(
            f"{heads} query heads cannot share {kv_heads} key-value heads: each of these serves "
            "the same number of query heads. Choose fewer key-value heads, or more query heads"
        )
    cache = KVCache(layers, kv_heads, head_size, batch * beams, dtype)
    count = parameter_count(layers, heads, kv_heads, head_size)
    memory = measure_cache(cache, length, count * ITEM_BYTES[dtype], gpu)
    longest = cache.longest(memory.free_for_cache_bytes)
    sequences = "1 sequence" if cache.sequences == 1 else f"{cache.sequences} sequences"
    wanted = f"{length:,} tokens of {sequences}"
    held = short_size(cache.held_bytes(length))
    summary = (
        f"{wanted} take {held}, and fit." if memory.fits else f"{wanted} need {held}: too much."
    )
    picture = draw_stack(
        {"weights": memory.weights_bytes, "cache of keys and values": cache.held_bytes(length)},
        title=f"Weights and cache on {gpu}",
        capacity_bytes=catalogue.find(gpu).total_bytes,
    )
    return View(summary, picture, (_table(cache, memory, count, length, longest),))


def parameter_count(layers: int, heads: int, kv_heads: int, head_size: int) -> int:
    """Estimate how many parameters a Llama of these sizes has, without its vocabulary.

    With w = heads x head size, each layer has queries and output (w, w), keys and values
    (kv heads x head size, w), and three matrices (w, 3.5 w) of the feed-forward layer, as
    Llama 3 8B has them (arXiv 2407.21783, table 3).
    """
    width = heads * head_size
    attention = 2 * width * width + 2 * kv_heads * head_size * width
    return layers * (attention + 3 * width * width * 7 // 2)


def measure_cache(cache: KVCache, length: int, weights_bytes: int, gpu: str) -> CacheMemory:
    """Allocate weights, cache and one more token on a fresh virtual GPU, until memory runs out."""
    dtype = getattr(torch, cache.dtype)
    kept: list[torch.Tensor] = []
    with VirtualGPU(gpu):
        try:
            for start in range(0, weights_bytes, _LARGEST_WEIGHT_BYTES):
                size_bytes = min(_LARGEST_WEIGHT_BYTES, weights_bytes - start)
                kept.append(torch.empty(size_bytes, dtype=torch.uint8, device="cuda"))
            held_bytes = torch.cuda.memory_allocated()
            free_bytes, _ = torch.cuda.mem_get_info()
            fits = True
        except torch.OutOfMemoryError:
            held_bytes, free_bytes, fits = torch.cuda.memory_allocated(), 0, False
        try:
            if fits:
                shape = (cache.sequences, cache.kv_heads, length, cache.head_size)
                for _ in range(2 * cache.layers):
                    kept.append(torch.empty(shape, dtype=dtype, device="cuda"))
                one = (cache.sequences, cache.kv_heads, 1, cache.head_size)
                torch.cat([kept[-1], torch.empty(one, dtype=dtype, device="cuda")], dim=2)
        except torch.OutOfMemoryError:
            fits = False
        cache_bytes = torch.cuda.memory_allocated() - held_bytes
        kept.clear()
    return CacheMemory(weights_bytes, cache_bytes, fits, free_bytes)


def _table(cache: KVCache, memory: CacheMemory, count: int, length: int, longest: int) -> Table:
    beside = (
        f"{longest:,} tokens" if memory.free_for_cache_bytes else "nothing: the weights do not fit"
    )
    rows: list[tuple[str, str]] = [
        (f"weights: {count / 1e9:.2f} billion parameters", format_mib(memory.weights_bytes)),
        ("one token of one sequence", f"{cache.token_bytes:,} B"),
        (f"one sequence of {length:,} tokens", format_mib(cache.token_bytes * length)),
        ("the cache, predicted", format_mib(cache.held_bytes(length))),
        ("the cache, allocated", _allocated(memory)),
        ("what appending takes for a moment", format_mib(cache.tensor_bytes(length))),
        ("longest that fits beside the weights, at best", beside),
    ]
    return Table("Allocated on a virtual GPU of this kind", ("what", "size"), tuple(rows))


def _allocated(memory: CacheMemory) -> str:
    if memory.fits:
        return format_mib(memory.cache_bytes)
    return "out of memory after\n" + format_mib(memory.cache_bytes)
