"""Identities of virtual GPUs, and which of them a program sees."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

from vramlab.catalogue import GPUModel

_UUID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "vramlab")


def device_uuid(model: GPUModel, index: int) -> uuid.UUID:
    """Make the identity of GPU `index`: the same in every process, different for every index."""
    return uuid.uuid5(_UUID_NAMESPACE, f"{model.name}/{index}")


def visible_count(text: str, uuids: Sequence[str]) -> int:
    """Count the GPUs that a CUDA_VISIBLE_DEVICES names, up to the first that is none.

    Args:
        text: indices, or beginnings of identities ("GPU-..."), with commas between them.
        uuids: identities of all GPUs, without "GPU-".
    """
    found: list[int] = []
    for word in text.split(","):
        digits = re.match(r"\s*\+?(\d+)", word)
        if word.startswith("GPU-"):
            named = [at for at, uuid in enumerate(uuids) if f"GPU-{uuid}".startswith(word)]
        else:
            named = [] if digits is None else [int(digits[1])]
        if len(named) != 1 or named[0] >= len(uuids):
            break
        if named[0] in found:
            return 0
        found += named
    return len(found)
