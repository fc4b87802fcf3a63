"""Declare the GPUs that explorers offer, and make those that they measure on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.units import GIB
from vramlab_course.widgets.controls import Control, choice

_ROOM_BYTES = 2**50
"""More than any model of an explorer needs."""


def gpu_choice(*names: str, others: Callable[[GPUModel], bool] = lambda gpu: False) -> Control:
    """Declare a drop-down list of GPUs, which a caller spells as `catalogue.find` allows.

    Args:
        names: the GPUs that it offers.
        others: whether a caller can choose another GPU of the catalogue; the list then has it, too.
    """

    def make(value: str, **look: Any) -> Any:
        offered = names
        if value not in names and others(catalogue.find(value)):
            offered = (*names, value)
        return choice("GPU", offered).make(value=value, **look)

    return replace(choice("GPU", names), make=make, read=lambda gpu: catalogue.find(str(gpu)).name)


def any_gpu(gpu: GPUModel) -> bool:
    """Allow a caller every GPU of the catalogue."""
    return True


def _has_tensor_cores(gpu: GPUModel) -> bool:
    return gpu.fp16_tensor_flops_per_s is not None


_COMMON = catalogue.common()

AnyGPU = Annotated[
    str, gpu_choice(*(gpu.name for gpu in _COMMON), others=any_gpu), "a GPU of the catalogue"
]
TensorCoreGPU = Annotated[
    str,
    gpu_choice(*(gpu.name for gpu in _COMMON if _has_tensor_cores(gpu)), others=_has_tensor_cores),
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
