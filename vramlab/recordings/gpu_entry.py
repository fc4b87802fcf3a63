"""Writes an entry for `gpus.toml` from what this machine's GPU reports."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import torch

from vramlab import catalogue
from vramlab.errors import UnknownGPUError, VramlabError
from vramlab.gpu.torch_internals import get_nvml_device_index
from vramlab.recordings.machine import context_moments, describe_machine
from vramlab.recordings.virtual_counterpart import PROPERTY_FIELDS
from vramlab.units import MIB

# Figures that follow from the compute capability, or that every GPU has.
_KNOWN_ANYWAY = {
    "max_threads_per_multiprocessor",
    "max_threads_per_block",
    "warp_size",
    "registers_per_multiprocessor",
    "shared_memory_per_block_bytes",
    "shared_memory_per_block_optin_bytes",
    "shared_memory_per_multiprocessor_bytes",
}


def measured_entry() -> str:
    """Measure GPU 0, and write its entry in the form of `gpus.toml`.

    Must be the first thing that a process does with CUDA. The context counts only if no other
    program uses the GPU.

    Raises:
        VramlabError: there is no GPU that PyTorch can use.
    """
    if not torch.cuda.is_available():
        raise VramlabError(
            "there is no GPU on this machine that PyTorch can use: nothing to measure"
        )
    context_bytes = _context_bytes()
    machine = describe_machine()
    properties = machine["properties"]
    capability = properties["major"], properties["minor"]
    figures: dict[str, Any] = {"product_name": properties["name"]}
    figures |= {
        field: properties[name]
        for name, field in PROPERTY_FIELDS.items()
        if name in properties and field not in _KNOWN_ANYWAY
    }
    figures["compute_capability"] = list(capability)
    if machine["nvml_total_bytes"]:
        figures["nvml_total_bytes"] = machine["nvml_total_bytes"]
    if context_bytes:
        figures["context_bytes"] = context_bytes
    figures |= _of_the_bus()
    family = catalogue.family_of(capability, properties["name"])
    source = (
        f"vramlab gpus --measure: driver {machine['driver'] or 'unknown'}, "
        f"torch {machine['torch']}, CUDA {machine['cuda']}"
    )
    lines = [
        f"# {_comment(properties, family)}",
        "[[gpu]]",
        f'name = "{_name(properties["name"])}"',
        "aliases = []",
        *([f'family = "{family}"'] if family else []),
        "",
        "[[gpu.figures]]",
        f"source = {json.dumps(source)}",
        *(f"{name} = {_value(name, value)}" for name, value in figures.items()),
    ]
    return "\n".join(lines)


def _context_bytes() -> int | None:
    """Measure what the context takes beside what was in use before it."""
    readings = {each["moment"]: each for each in context_moments(until="synchronize")}
    used_bytes: int = readings["synchronize"]["used_bytes"]
    return used_bytes - (readings["before CUDA"]["nvml_used_bytes"] or 0)


def _of_the_bus() -> dict[str, int]:
    """Ask NVML for the device number and the widest PCI Express link; nothing without NVML."""
    with contextlib.suppress(ModuleNotFoundError):
        import pynvml

        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(get_nvml_device_index(0))
                return {
                    "pcie_generation": pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
                    "pcie_lanes": pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
                    "pci_device_id": pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId >> 16,
                }
            finally:
                pynvml.nvmlShutdown()
    return {}


def _comment(properties: Mapping[str, Any], family: str | None) -> str:
    try:
        gpu = catalogue.find_device(properties["name"], properties["total_memory"])
        known = f"The catalogue has it as {gpu.name}."
    except UnknownGPUError:
        known = "The catalogue does not have it yet: please add it to vramlab/gpus.toml."
    if family:
        return f"{known} FLOP/s and NVLink follow from its family; a datasheet's replace them."
    capability = f"{properties['major']}.{properties['minor']}"
    return (
        f"{known} No family has compute capability {capability}: add one, with FLOP a clock, or "
        "the datasheet's FLOP/s."
    )


def _name(product: str) -> str:
    """Shorten a product name as the catalogue does: `RTX-4090`."""
    words = (word for word in product.split() if word not in ("NVIDIA", "GeForce", "Tesla", "GPU"))
    return "-".join(words)


def _value(name: str, value: Any) -> str:
    if name == "pci_device_id":
        return f"0x{value:04X}"
    if name == "context_bytes":
        return f"{value:_}  # {value / MIB:g} MiB"
    return f"{value:_}" if isinstance(value, int) else json.dumps(value)
