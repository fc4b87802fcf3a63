"""The report of a serving plan, as text, tables and data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vramlab.planner.serving import Serving
from vramlab.table import Table
from vramlab.units import KIB, MIB, format_bytes, format_mib


def serving_text(serving: Serving, sequence: int) -> str:
    """Return the whole report as text.

    Args:
        serving: The serving plan.
        sequence: Tokens of a request that has to fit.
    """
    parts = [_heading(serving), str(memory_table(serving))]
    if serving.cache_bytes > 0:
        parts.append(str(requests_table(serving, sequence)))
    return "\n\n".join([*parts, verdict(serving, sequence)])


def memory_table(serving: Serving) -> Table:
    """Return a table of what fills each GPU."""
    share = f"{serving.utilization:.0%} of {format_bytes(serving.gpu.total_bytes)}"
    rows = (
        (f"available to the server ({share})", serving.budget_bytes),
        ("CUDA context", serving.gpu.context_bytes),
        (f"weights ({serving.weights})", serving.weights_bytes),
        (f"forward pass of {serving.batched_tokens:,} tokens (about)", serving.activations_bytes),
        ("left for the KV cache", serving.cache_bytes),
    )
    return Table(
        "Memory of each GPU",
        ("", "size"),
        tuple((name, format_mib(size_bytes)) for name, size_bytes in rows),
    )


def requests_table(serving: Serving, sequence: int) -> Table:
    """Return a table of how many concurrent requests fit, by length."""
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
    header = ("tokens", "KV cache, MiB", "of it unused, MiB", "concurrent requests")
    notes = (
        f"A token needs {serving.token_bytes / KIB:,.2f} KiB of KV cache on each GPU. Blocks have "
        f"{serving.page} tokens; on average, half a block per request is unused.",
    )
    return Table("Requests by length", header, tuple(rows), notes)


def verdict(serving: Serving, sequence: int) -> str:
    """Return a sentence that says how many concurrent requests fit."""
    name = serving.gpu.name
    if serving.cache_bytes <= 0:
        missing = format_bytes(-serving.cache_bytes)
        return f"It does not fit: even without requests, {name} lacks {missing}."
    request = serving.request(sequence)
    if not request.count:
        needed = format_bytes(request.cache_bytes)
        left = format_bytes(serving.cache_bytes)
        return (
            f"No request of {sequence:,} tokens fits: its KV cache needs {needed}, but only {left} "
            "are left. Use shorter requests, a smaller KV-cache dtype (--cache float8), or more "
            "GPUs (--tensor)."
        )
    plural = "" if request.count == 1 else "s"
    return f"It fits: {request.count:,} concurrent request{plural} of {sequence:,} tokens."


def serving_dict(serving: Serving, sequence: int) -> dict[str, Any]:
    """Return the report as plain data, with sizes in bytes."""
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
        f"{serving.cache} KV cache with blocks of {serving.page} tokens"
    )
