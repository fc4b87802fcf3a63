"""vramlab: where GPU memory goes when PyTorch trains a model, on a GPU that need not be there.

    import vramlab
    vramlab.attach("A100-40GB")                  # or: with vramlab.VirtualGPU("T4"): ...
    model.to("cuda"); ...; torch.cuda.max_memory_allocated()

Importing it is quick: torch is imported with the first name that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramlab.attachment import attach, attached, detach
    from vramlab.catalogue import GPUModel
    from vramlab.errors import (
        AllocatorConfigError,
        NoValuesError,
        UnknownGPUError,
        UnsupportedOnVirtualGPU,
        VramlabError,
    )
    from vramlab.explaining.explanation import explain
    from vramlab.gpu import VirtualGPU
    from vramlab.planner.planning import plan
    from vramlab.report.evidence.stages import stage
    from vramlab.report.track import track
    from vramlab.units import GIB, KIB, MIB

__version__ = "0.1.0"

_HOME = {
    "attach": "vramlab.attachment",
    "attached": "vramlab.attachment",
    "detach": "vramlab.attachment",
    "explain": "vramlab.explaining.explanation",
    "plan": "vramlab.planner.planning",
    "GPUModel": "vramlab.catalogue",
    "VirtualGPU": "vramlab.gpu",
    "stage": "vramlab.report.evidence.stages",
    "track": "vramlab.report.track",
    "AllocatorConfigError": "vramlab.errors",
    "NoValuesError": "vramlab.errors",
    "UnknownGPUError": "vramlab.errors",
    "UnsupportedOnVirtualGPU": "vramlab.errors",
    "VramlabError": "vramlab.errors",
    "GIB": "vramlab.units",
    "KIB": "vramlab.units",
    "MIB": "vramlab.units",
}

__all__ = [
    "GIB",
    "KIB",
    "MIB",
    "AllocatorConfigError",
    "GPUModel",
    "NoValuesError",
    "UnknownGPUError",
    "UnsupportedOnVirtualGPU",
    "VirtualGPU",
    "VramlabError",
    "attach",
    "attached",
    "detach",
    "explain",
    "plan",
    "stage",
    "track",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vramlab' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
