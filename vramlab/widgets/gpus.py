"""The GPUs that explorers offer, and those that they measure on."""

from __future__ import annotations

from dataclasses import replace

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.units import GIB

_ROOM_BYTES = 2**50
"""More than any model of an explorer needs."""


def with_tensor_cores() -> tuple[str, ...]:
    """The names of those that multiply matrices of float16 on tensor cores."""
    return tuple(model.name for model in catalogue.models() if model.fp16_tensor_flops_per_s)


def roomy(name: str) -> GPUModel:
    """A GPU of the catalogue, but with memory to spare: what does not fit is measured, too."""
    return replace(
        catalogue.find(name), total_bytes=_ROOM_BYTES, nvml_total_bytes=_ROOM_BYTES + GIB
    )
