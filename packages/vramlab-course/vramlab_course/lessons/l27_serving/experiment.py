"""Lesson 27: how many requests a cache has room for, and what a token takes of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vramlab.cuda_rules.sizes import segment_size, unsplit_remainder_bytes
from vramlab.units import GIB
from vramlab_course.experiments.outcome import Difference, Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.kv_cache import KVCache
from vramlab_course.lessons.l27_serving.formulas import latent_token_bytes, requests_at_once
from vramlab_course.lessons.l27_serving.paged_cache import OutOfPages, PagedCache

PAPER = "arXiv 2309.06180"


@dataclass(frozen=True)
class ServedOPT:
    """A model of table 1 of arXiv 2309.06180. Sizes: arXiv 2205.01068, table 1."""

    name: str
    layers: int
    heads: int
    head_size: int
    cache_gib: int
    """What the table says is left for the cache; it prints GB, and its slots are of GiB."""

    @property
    def cache(self) -> KVCache:
        """Sizes of its cache."""
        return KVCache(self.layers, self.heads, self.head_size)


OPT = (
    ServedOPT("13B", 40, 40, 128, 12),
    ServedOPT("66B", 64, 72, 128, 21),
    ServedOPT("175B", 96, 96, 128, 264),
)
LONGEST = 2048
"""Tokens of a text of OPT, at most."""
PAGE_TOKENS = 16


@experiment(
    "reserved-or-paged",
    lesson="27",
    question="How many requests fit beside OPT-13B, reserved at once or in pages?",
    source="arXiv 2309.06180 table 1, figures 2 and 13",
    figures=(
        "opt13b-token",
        "opt13b-request",
        "opt-cache-slots",
        "orca-max-requests",
        "orca-max-waste",
    ),
    conditions=Conditions(gpu="A100-40GB", why="the paper's table 1 names it"),
)
def reserved_or_paged(tokens: int = 330, pool_gib: int = OPT[0].cache_gib) -> Outcome:
    """Fill a cache of OPT-13B with requests, each reserved for the longest text, and in pages.

    Args:
        tokens: of each request in the second case.
        pool_gib: what there is for the cache.
    """
    trial = Trial("reserved-or-paged", tokens=tokens, pool_gib=pool_gib)
    sizes, pool_bytes = OPT[0].cache, pool_gib * GIB
    with trial.stage("a token", expected("growth", sizes.token_bytes, "opt13b-token")):
        token = _piece(sizes, 1)
    longest_bytes = LONGEST * sizes.token_bytes
    with trial.stage("a request", expected("growth", longest_bytes, "opt13b-request")):
        request = _piece(sizes, LONGEST)
    del token, request
    torch.cuda.empty_cache()
    fits = requests_at_once(pool_bytes, LONGEST, sizes.token_bytes, None)
    with trial.stage("reserved", expected("growth", fits * longest_bytes)):
        reserved = fill_by_reserving(sizes, LONGEST, pool_bytes)
    pages = pool_bytes // (PAGE_TOKENS * sizes.token_bytes)
    outside = 1 - len(reserved) * LONGEST / (pages * PAGE_TOKENS)
    trial.find("orca-max-requests", len(reserved), predicted=fits)
    _find_waste(trial, 100 * outside)
    del reserved
    torch.cuda.empty_cache()
    all_bytes = pages * PAGE_TOKENS * sizes.token_bytes
    all_bytes += unsplit_remainder_bytes(all_bytes, segment_size(all_bytes))
    with trial.stage("in pages", expected("growth", all_bytes)):
        paged = PagedCache(pages, PAGE_TOKENS, sizes.layers, sizes.kv_heads, sizes.head_size)
    fill_with_pages(paged, tokens)
    for model in OPT:
        _find_slots(trial, model)
    return trial.outcome()


def fill_by_reserving(sizes: KVCache, tokens: int, pool_bytes: int) -> list[torch.Tensor]:
    """Reserve room for one request after the other, until so much memory is used."""
    _, total_bytes = torch.cuda.mem_get_info()
    reserved = []
    torch.cuda.set_per_process_memory_fraction(
        (torch.cuda.memory_reserved() + pool_bytes) / total_bytes
    )
    try:
        while True:
            reserved.append(_piece(sizes, tokens))
    except torch.OutOfMemoryError:
        return reserved
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def fill_with_pages(cache: PagedCache, tokens: int) -> int:
    """Return pages to requests of so many tokens until none are left; answer how many came in."""
    count = 0
    try:
        while True:
            cache.grow(f"request {count}", tokens)
            count += 1
    except OutOfPages:
        return count


def _piece(sizes: KVCache, tokens: int) -> torch.Tensor:
    """Keys and values of so many tokens in all layers, in one piece."""
    shape = (sizes.layers, 2, tokens, sizes.kv_heads, sizes.head_size)
    return torch.empty(shape, dtype=getattr(torch, sizes.dtype), device="cuda")


def _find_slots(trial: Trial, model: ServedOPT) -> None:
    """Hold the slots of pages, in thousands of tokens, against the table's."""
    page_bytes = PAGE_TOKENS * model.cache.token_bytes
    slots = model.cache_gib * GIB // page_bytes * PAGE_TOKENS / 1000
    index = OPT.index(model)
    rounded = (
        Difference(
            round(slots - 9.7, 3),
            "the table rounds the cache to 21 GB: from 20.5 to 21.5 GiB hold 9.3 to 9.8 thousand",
            f"{PAPER} table 1",
        ),
    )
    trial.find(
        "opt-cache-slots",
        slots,
        predicted=model.cache_gib * GIB // model.cache.token_bytes / 1000,
        index=index,
        part=model.name,
        differences=rounded if model.name == "66B" else (),
    )


def _find_waste(trial: Trial, outside_percent: float) -> None:
    for index, part in enumerate(("tokens", "reserved, used later", "reserved, never used")):
        trial.find(
            "orca-max-waste",
            None,
            index=index,
            part=part,
            quoted=True,
            note="an average over requests of an hour, whose lengths the paper does not list",
        )
    trial.find("orca-max-waste", outside_percent, index=3, part="external, and other")


@dataclass(frozen=True)
class PublishedAttention:
    """A model's attention, as far as its cache asks."""

    figure: str
    """Id of the published number."""
    index: int
    """Which number of the figure."""
    name: str
    layers: int
    tensors: tuple[int, ...]
    """Numbers of each tensor that a layer keeps of a token."""
    why: str
    """Where its sizes are from."""

    @property
    def numbers(self) -> int:
        """What a token takes, as a number of numbers."""
        return self.layers * sum(self.tensors)


DEEPSEEK = (
    PublishedAttention(
        "mla-small", 0, "MHA", 27, (16 * 128,) * 2, "DeepSeek-V2-Lite's layers and heads"
    ),
    PublishedAttention("mla-small", 1, "MLA", 27, (512, 64), "DeepSeek-V2-Lite's configuration"),
    PublishedAttention(
        "mla-large", 0, "MHA", 60, (56 * 128,) * 2, "56 heads: what the number gives"
    ),
    PublishedAttention("mla-large", 1, "MLA", 60, (512, 64), "DeepSeek-V2's configuration"),
)
DEEPSEEK_67B = PublishedAttention(
    "mla-against-67b", 0, "DeepSeek 67B", 95, (8 * 128,) * 2, "arXiv 2401.02954 table 2"
)
MLA_BITS = 6
"""Bits of a number in DeepSeek-V2's cache, on average (arXiv 2405.04434 §3.2.3)."""


@experiment(
    "latent-cache",
    lesson="27",
    question="What does a token take in the cache of DeepSeek-V2?",
    source="arXiv 2405.04434 abstract, §2.1 and appendix",
    figures=("mla-small", "mla-large", "mla-against-67b"),
)
def latent_cache(page: int = 16) -> Outcome:
    """Make a page of each model's cache, layer by layer.

    Args:
        page: tokens of the page; of 16, no tensor is rounded up to a block.
    """
    trial = Trial("latent-cache", page=page)
    for attention in (*DEEPSEEK, DEEPSEEK_67B):
        numbers = _numbers_per_token(trial, attention, page)
        if attention is DEEPSEEK_67B:
            continue
        trial.find(
            attention.figure,
            numbers / 1000,
            predicted=attention.numbers / 1000,
            index=attention.index,
            part=attention.name,
        )
    latent = latent_token_bytes(60) * MLA_BITS // 16
    dense = 2 * DEEPSEEK_67B.numbers
    trial.find("mla-against-67b", 100 * (1 - latent / dense))
    return trial.outcome()


def _numbers_per_token(trial: Trial, attention: PublishedAttention, page: int) -> int:
    name = f"{attention.figure}, {attention.name}"
    kept = []
    with trial.stage(name, expected("growth", 2 * page * attention.numbers)) as stage:
        for _ in range(attention.layers):
            for numbers in attention.tensors:
                kept.append(torch.empty((page, numbers), dtype=torch.bfloat16, device="cuda"))
    del kept
    torch.cuda.empty_cache()
    return stage.measurement.growth_bytes // (2 * page)
