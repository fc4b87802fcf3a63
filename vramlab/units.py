"""Units of memory. Bytes are `int`; KiB, MiB and GiB are powers of two."""

from __future__ import annotations

import re
from decimal import Decimal

KIB = 2**10
MIB = 2**20
GIB = 2**30


def format_bytes(size_bytes: int) -> str:
    """Format bytes like PyTorch's error messages: `512 bytes`, `2.00 MiB`, `1.24 GiB`.

    Source: `format_size` in c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.13 (a unit is used above
    one of it, two decimals).
    """
    if size_bytes <= KIB:
        return f"{size_bytes} bytes"
    for unit_bytes, unit in ((MIB, "KiB"), (GIB, "MiB")):
        if size_bytes <= unit_bytes:
            return f"{size_bytes / (unit_bytes // KIB):.2f} {unit}"
    return f"{size_bytes / GIB:.2f} GiB"


def parse_bytes(text: str) -> int:
    """Parse a size such as `12 GiB`, `512MiB`, `1.5 GiB` or `4096` (bytes).

    Raises:
        ValueError: Not a size. Units are B, KiB, MiB and GiB, powers of two.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]iB|B|bytes)?\s*", text)
    if found is None:
        raise ValueError(f"invalid size {text!r}: use a binary unit, for example '12 GiB'")
    unit_bytes = {"KiB": KIB, "MiB": MIB, "GiB": GIB}.get(found[2], 1)
    return int(Decimal(found[1]) * unit_bytes)


def mib(size_bytes: int) -> float:
    """Convert bytes to MiB (2**20 bytes)."""
    return size_bytes / MIB


def format_mib(size_bytes: int) -> str:
    """Format bytes as MiB with four decimals, with the exact bytes on a second line."""
    return f"{size_bytes / MIB:,.4f} MiB\n{size_bytes:,} B"


def signed_bytes(difference_bytes: int) -> str:
    """Format a difference: 'equal', or the bytes with their sign."""
    return f"{difference_bytes:+,} B" if difference_bytes else "equal"


def short_size(size_bytes: int) -> str:
    """Format bytes for a label: `512 B`, `8.125 MiB`, `1.5 GiB`; at most three decimals."""
    for name, unit_bytes in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(size_bytes) >= unit_bytes:
            return f"{size_bytes / unit_bytes:,.3f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{size_bytes} B"
