"""Declare the GPUs that explorers offer, and make those that they measure on."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.units import GIB
from vramlab_course.widgets.controls import Control, choice

_ROOM_BYTES = 2**50
"""More than any model of an explorer needs."""


def gpu_choice(*names: str) -> Control:
    """Declare a drop-down list of GPUs, which a caller spells as `catalogue.find` allows."""
    return replace(choice("GPU", names), read=lambda gpu: catalogue.find(str(gpu)).name)


AnyGPU = Annotated[str, gpu_choice(*catalogue.names()), "a GPU of the catalogue"]
TensorCoreGPU = Annotated[
    str,
    gpu_choice(*(gpu.name for gpu in catalogue.models() if gpu.fp16_tensor_flops_per_s)),
    "a GPU of the catalogue with tensor cores for float16",
]
UnlistedGPU = Annotated[
    str, "a GPU of the catalogue; figures are the same on every one that is large enough"
]


def roomy(name: str) -> GPUModel:
    """Return a GPU of the catalogue with memory to spare: what does not fit is measured, too."""
    return replace(
        catalogue.find(name), total_bytes=_ROOM_BYTES, nvml_total_bytes=_ROOM_BYTES + GIB
    )
