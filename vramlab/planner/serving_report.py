"""A serving plan as tables, in a sentence, and as data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vramlab.planner.serving import Serving
from vramlab.table import Table
from vramlab.units import KIB, MIB, format_bytes, format_mib


def serving_text(serving: Serving, sequence: int) -> str:
    """Give the whole plan as text.

    Args:
        serving: what is planned.
        sequence: tokens of the requests that have to fit.
    """
    parts = [_heading(serving), str(memory_table(serving))]
    if serving.cache_bytes > 0:
        parts.append(str(requests_table(serving, sequence)))
    return "\n\n".join([*parts, verdict(serving, sequence)])


def memory_table(serving: Serving) -> Table:
    """Say what each GPU's memory goes to."""
    share = f"{serving.utilization:.0%} of {format_bytes(serving.gpu.total_bytes)}"
    rows = (
        (f"taken by the server, {share}", serving.budget_bytes),
        ("CUDA context", serving.gpu.context_bytes),
        (f"weights, {serving.weights}", serving.weights_bytes),
        (f"a forward pass of {serving.batched_tokens:,} tokens, about", serving.activations_bytes),
        ("left for the cache", serving.cache_bytes),
    )
    return Table(
        "Each GPU",
        ("bytes of", ""),
        tuple((name, format_mib(size_bytes)) for name, size_bytes in rows),
    )


def requests_table(serving: Serving, sequence: int) -> Table:
    """Say how many requests of which length fit at a time."""
    rows = []
    for length in sorted({*serving.lengths(), sequence}):
        request = serving.request(length)
        rows.append(
            (
                f"{length:,}",
                f"{request.cache_bytes / MIB:,.2f}",
                f"{request.unused_bytes / MIB:,.2f}",
                f"{request.count:,}",
            )
        )
    header = ("tokens of a request", "its cache, MiB", "of it unused, MiB", "fit at a time")
    notes = (
        f"A token takes {serving.token_bytes / KIB:,.2f} KiB in the cache of each GPU. Pages are "
        f"of {serving.page} tokens; half a page of each request is unused on average.",
    )
    return Table("Requests", header, tuple(rows), notes)


def verdict(serving: Serving, sequence: int) -> str:
    """Tell in a sentence whether requests fit, and how many."""
    name = serving.gpu.name
    if serving.cache_bytes <= 0:
        lacking = format_bytes(-serving.cache_bytes)
        return f"It does not fit: {name} has {lacking} too little, before any request."
    request = serving.request(sequence)
    if not request.count:
        needed = format_bytes(request.cache_bytes)
        left = format_bytes(serving.cache_bytes)
        return (
            f"No request of {sequence:,} tokens fits: its cache needs {needed}, {left} are left. "
            "Shorter requests, a smaller cache dtype, or more GPUs would help."
        )
    times = "One request" if request.count == 1 else f"{request.count:,} requests"
    verb = "fits" if request.count == 1 else "fit"
    return f"It fits: {times} of {sequence:,} tokens {verb} at a time."


def serving_dict(serving: Serving, sequence: int) -> dict[str, Any]:
    """Give the same as plain data, sizes in bytes."""
    lengths = sorted({*serving.lengths(), sequence})
    return {
        "model": serving.model.name,
        "gpu": serving.gpu.name,
        "tensor": serving.tensor,
        "page": serving.page,
        "fits": serving.cache_bytes > 0 and serving.request(sequence).count > 0,
        "budget_bytes": serving.budget_bytes,
        "context_bytes": serving.gpu.context_bytes,
        "weights_bytes": serving.weights_bytes,
        "activations_bytes": serving.activations_bytes,
        "cache_bytes": serving.cache_bytes,
        "token_bytes": serving.token_bytes,
        "requests": [asdict(serving.request(length)) for length in lengths],
    }


def _heading(serving: Serving) -> str:
    count = f"{serving.tensor} x " if serving.tensor > 1 else ""
    return (
        f"{serving.model.name} served on {count}{serving.gpu.name}, {serving.weights} weights, "
        f"{serving.cache} cache in pages of {serving.page} tokens"
    )
