"""Lesson 27: what transformers' caches hold for a sequence, and take for one token more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from vramlab_course.lessons.l27_serving.paged_cache import PagedCache
from vramlab_course.libraries.measuring import begin, library
from vramlab_course.libraries.results import LibraryRow, versioned

LAYERS, HEADS, HEAD_SIZE, PROMPT = 32, 8, 128, 2000
"""Llama 3.1 8B's keys and values, and a sequence that fills 125 pages of 16 tokens."""


def measure() -> list[LibraryRow]:
    """Measure the course's pages and the caches of transformers."""
    hugging = library("transformers")
    config = hugging.LlamaConfig(
        num_hidden_layers=LAYERS,
        num_attention_heads=32,
        num_key_value_heads=HEADS,
        hidden_size=32 * HEAD_SIZE,
    )
    before_bytes = begin()
    pages = PagedCache(PROMPT // 16 + 1, 16, LAYERS, HEADS, HEAD_SIZE)
    pages.grow("one", PROMPT + 1)
    held_bytes = torch.cuda.memory_allocated() - before_bytes
    torch.cuda.reset_peak_memory_stats()
    pages.grow("one", 1)
    top_bytes = torch.cuda.max_memory_allocated() - before_bytes - held_bytes
    del pages
    caches: dict[str, Callable[[], Any]] = {
        "DynamicCache": lambda: hugging.DynamicCache(config=config),
        "StaticCache, 4,096 tokens": lambda: hugging.StaticCache(config, max_cache_len=4096),
        "QuantizedCache, fp8": lambda: hugging.QuantizedCache("fp8", config),
    }
    return [
        LibraryRow("the course: pages of 16", _named(held_bytes, top_bytes)),
        *(
            LibraryRow(versioned("transformers", name), _sizes(make()))
            for name, make in caches.items()
        ),
    ]


def _sizes(cache: Any) -> dict[str, int]:
    before_bytes = begin()

    def append(tokens: int) -> None:
        for layer in range(LAYERS):
            new = torch.zeros(1, HEADS, tokens, HEAD_SIZE, dtype=torch.bfloat16, device="cuda")
            cache.update(new, new.clone(), layer)

    append(PROMPT)
    append(1)
    torch.cuda.empty_cache()
    held_bytes = torch.cuda.memory_allocated() - before_bytes
    torch.cuda.reset_peak_memory_stats()
    append(1)
    top_bytes = torch.cuda.max_memory_allocated() - before_bytes - held_bytes
    return _named(held_bytes, top_bytes)


def _named(held_bytes: int, top_bytes: int) -> dict[str, int]:
    return {"held": held_bytes, "on top, for a token more": top_bytes}
