"""Explore how many requests a GPU serves: what its weights leave, cut into pages or reserved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch

from vramlab import VirtualGPU, catalogue
from vramlab.measure import Table
from vramlab.units import format_mib
from vramlab_course.lessons.l27_serving.formulas import quantized_bytes, requests_at_once
from vramlab_course.plots import draw_stack
from vramlab_course.widgets.controls import choice, powers
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import AnyGPU

ROOM = 0.9
"""Share of the GPU that a server takes (vLLM's default, `gpu_memory_utilization`); the other tenth
is for activations, and for others."""


@dataclass(frozen=True)
class Served:
    """A model, as far as the explorer asks."""

    parameters: int
    """Rounded as its paper does."""
    numbers: int
    """That a token takes in the cache, in all layers."""
    longest: int
    """Tokens of a text, at most."""


MODELS = {
    "OPT-13B: all heads": Served(13 * 10**9, 2 * 40 * 40 * 128, 2048),
    "Llama 3.1 8B: groups": Served(8 * 10**9, 2 * 32 * 8 * 128, 131072),
    "Llama 3.1 70B: groups": Served(70 * 10**9, 2 * 80 * 8 * 128, 131072),
    "DeepSeek-V2-Lite: latent": Served(16 * 10**9, 27 * (512 + 64), 32768),
}
"""Sizes: arXiv 2205.01068 table 1, 2407.21783 table 3, 2405.04434 appendix B."""

PAGES = ("16", "64", "256", "reserve the longest")


@dataclass(frozen=True)
class ServerMemory:
    """What was allocated on one GPU."""

    weights_bytes: int
    pool_bytes: int
    """Of the cache; 0 where the weights do not fit."""


@explorer("How many requests fit")
def serving_explorer(
    model: Annotated[str, choice("Model", MODELS), "a model that is served"] = "OPT-13B: all heads",
    gpu: AnyGPU = "A100-40GB",
    bits: Annotated[int, choice("Bits of a weight", (16, 8, 4)), "16, or fewer with scales"] = 16,
    cache: Annotated[int, choice("Bits in the cache", (16, 8)), "of keys and values"] = 16,
    tokens: Annotated[int, powers("Tokens", 64, 131072), "of each request"] = 512,
    page: Annotated[str, choice("Page", PAGES), "its tokens, or no pages"] = "16",
) -> View:
    """Show what weights and cache take of a GPU, and how many requests of a length fit at a time.

    Weights and pages are allocated, of the nine tenths of the GPU that a server takes.
    """
    served = MODELS[model]
    if tokens > served.longest:
        raise ValueError(
            f"{model} reads at most {served.longest:,} tokens, and {tokens:,} are asked for"
        )
    token_bytes = served.numbers * cache // 8
    page_tokens = int(page) if page.isdigit() else None
    weights_bytes = weights_of(served.parameters, bits)
    memory = measure_server(weights_bytes, (page_tokens or served.longest) * token_bytes, gpu)
    asked = tokens if page_tokens else served.longest
    count = requests_at_once(memory.pool_bytes, asked, token_bytes, page_tokens)
    fit = "fits" if count == 1 else "fit"
    summary = (
        f"{count:,} request{'' if count == 1 else 's'} of {tokens:,} tokens {fit} at a time."
        if memory.pool_bytes
        else "The weights leave no room for a request."
    )
    used_bytes = min(count * tokens * token_bytes, memory.pool_bytes)
    picture = draw_stack(
        {
            "weights": weights_bytes,
            "tokens": used_bytes,
            "other: rest of the cache": memory.pool_bytes - used_bytes,
        },
        title=f"{model} on {gpu}, full of requests of {tokens:,} tokens",
        capacity_bytes=catalogue.find(gpu).total_bytes,
    )
    rows = (
        ("weights", format_mib(weights_bytes)),
        ("a token in the cache", f"{token_bytes:,} B"),
        (f"a request of {tokens:,} tokens", format_mib(tokens * token_bytes)),
        ("the whole cache", format_mib(memory.pool_bytes)),
        ("requests at a time", f"{count:,}"),
        ("of the cache, tokens", f"{used_bytes / (memory.pool_bytes or 1):.1%}"),
    )
    table = Table("Allocated on a virtual GPU of this kind", ("what", "size"), rows)
    return View(summary, picture, (table,))


def weights_of(parameters: int, bits: int) -> int:
    """Return what so many parameters take; of fewer bits than 16, with a scale for each 128."""
    if bits == 16:
        return 2 * parameters
    return quantized_bytes(parameters // 128, 128, bits)


def measure_server(weights_bytes: int, piece_bytes: int, gpu: str) -> ServerMemory:
    """Allocate weights on a fresh virtual GPU, and all the pieces of a cache beside them that fit.

    Args:
        weights_bytes: of the model.
        piece_bytes: of a page, or of a whole request that is reserved.
        gpu: by its name in the catalogue.
    """
    with VirtualGPU(gpu):
        budget_bytes = int(torch.cuda.mem_get_info()[1] * ROOM)
        weights = cache = None
        try:
            weights = torch.empty(weights_bytes, dtype=torch.uint8, device="cuda")
            free_bytes = budget_bytes - torch.cuda.memory_allocated()
            pool_bytes = max(0, free_bytes // piece_bytes * piece_bytes)
            cache = torch.empty(pool_bytes, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pool_bytes = 0
        del weights, cache
    return ServerMemory(weights_bytes, pool_bytes)
