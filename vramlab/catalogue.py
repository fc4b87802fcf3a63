"""The catalogue of GPU models: what the virtual GPU must know about the GPU it stands for.

The figures are data, in `gpus.toml`, each beside the source it comes from. This module says what
each figure means, reads the file once, and finds a GPU by the names people use for it:

    >>> find("rtx 3090").total_bytes
    25286672384
    >>> find("rtx 3090").sources["context_bytes"]
    'nvidia-smi, process before its first tensor: 256 MiB with torch 2.7.1+cu128, ...'
"""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any

from vramlab.errors import UnknownGPUError

# Words that a product name may begin with, and that nobody needs to type.
_MARKETING = ("nvidia", "geforce", "tesla")

# Billions of transfers a second on one lane. Generations 3 to 5 send 128 bits of data as 130.
# Source: PCI Express base specifications 3.0, 4.0 and 5.0.
_PCIE_GIGATRANSFERS_PER_S = {3: 8, 4: 16, 5: 32}


@dataclass(frozen=True)
class HistoricalContext:
    """The size of a CUDA context as somebody found it with a driver of the past."""

    context_bytes: int
    """What the context took, without PyTorch's reserved memory."""

    conditions: str
    """The CUDA version and whatever else is known of the machine."""

    source: str
    """Who says so."""


@dataclass(frozen=True)
class GPUModel:
    """One GPU model. Every figure's source is in `sources`, by the name of the field.

    Known limitations: how much of the memory the driver keeps for itself, and the size of the
    context, change with the driver. One driver's figures are here; `sources` names it.
    """

    name: str
    """Name in this catalogue, such as `A100-40GB`."""

    aliases: tuple[str, ...]
    """Other names that find it. Case, spaces and punctuation never matter."""

    product_name: str
    """What `torch.cuda.get_device_name` and NVML answer, such as `NVIDIA A100-SXM4-40GB`."""

    total_bytes: int
    """Memory that programs can have: `cudaMemGetInfo`, `total_memory` in the device properties."""

    nvml_total_bytes: int
    """Memory as NVML and nvidia-smi count it: `total_bytes` and what the driver keeps."""

    context_bytes: int
    """What a process takes by having a CUDA context, before its first tensor and first kernel.

    With a driver that loads kernels when they are first used (CUDA 11.7 and later); kernels and
    library handles come on top as the program goes on.
    """

    historical_contexts: tuple[HistoricalContext, ...]
    """Contexts under drivers of the past, most of which loaded every kernel at once."""

    compute_capability: tuple[int, int]
    """Major and minor, such as `(8, 0)`."""

    multiprocessors: int
    """Streaming multiprocessors (SMs); many kernels size their workspace by them."""

    max_threads_per_multiprocessor: int
    """Threads that one multiprocessor can keep resident."""

    max_blocks_per_multiprocessor: int
    """Blocks that one multiprocessor can keep resident."""

    max_threads_per_block: int
    """Threads that one block can have."""

    warp_size: int
    """Threads that run in step."""

    registers_per_multiprocessor: int
    """32-bit registers of one multiprocessor; one block can have as many."""

    shared_memory_per_multiprocessor_bytes: int
    """Shared memory of one multiprocessor."""

    shared_memory_per_block_bytes: int
    """Shared memory that a block gets without asking for more."""

    shared_memory_per_block_optin_bytes: int
    """Shared memory that a block can have if its kernel asks (`cudaFuncSetAttribute`)."""

    l2_cache_bytes: int
    """Size of the level 2 cache."""

    clock_rate_khz: int
    """Highest clock of the multiprocessors, as in the device properties."""

    memory_clock_rate_khz: int
    """Highest clock of the memory, as in the device properties."""

    memory_bus_width_bits: int
    """Width of the path to the memory."""

    memory_bandwidth_bytes_per_s: int
    """Bytes a second between the memory and the chip, at best."""

    fp32_flops_per_s: float
    """float32 outside tensor cores, in floating point operations a second; all dense."""

    tf32_tensor_flops_per_s: float | None
    """float32 matrices rounded to TF32, on tensor cores. None: not in this GPU."""

    fp16_tensor_flops_per_s: float | None
    """float16 on tensor cores, accumulated in float32. None: not in this GPU."""

    bf16_tensor_flops_per_s: float | None
    """bfloat16 on tensor cores. None: not in this GPU (PyTorch then emulates it)."""

    fp8_tensor_flops_per_s: float | None
    """8-bit floats on tensor cores. None: not in this GPU."""

    pcie_generation: int
    """PCI Express generation of the connection to the host."""

    pcie_lanes: int
    """Lanes of that connection."""

    nvlink_bandwidth_bytes_per_s: int | None
    """All NVLinks together, in one direction. None: this GPU has none."""

    pci_device_id: int
    """Device number in the PCI ID database; NVIDIA's vendor number is 0x10DE."""

    sources: Mapping[str, str] = field(compare=False, repr=False)
    """Where each figure comes from, by field name. "estimated: ..." marks those nobody measured."""

    @property
    def pcie_bandwidth_bytes_per_s(self) -> int:
        """Bytes a second between host and GPU in one direction, at best; headers included."""
        return link_bytes_per_s(self.pcie_generation, self.pcie_lanes)

    @property
    def driver_reserved_bytes(self) -> int:
        """What the driver keeps for itself: NVML's total without `total_bytes`."""
        return self.nvml_total_bytes - self.total_bytes

    def is_estimated(self, figure: str) -> bool:
        """Tell whether the figure is an estimate, for want of a published measurement."""
        return self.sources[figure].startswith("estimated:")


def link_bytes_per_s(generation: int, lanes: int) -> int:
    """Give bytes a second over PCI Express in one direction, at best, packets' headers counted.

    lanes x transfers/s x 128/130 / 8 bits. Both directions together carry twice as much.

    Args:
        generation: of PCI Express, 3 to 5.
        lanes: 1 to 16.

    Raises:
        ValueError: a generation that encodes its bits otherwise, or that is unknown.
    """
    if generation not in _PCIE_GIGATRANSFERS_PER_S:
        known = ", ".join(map(str, _PCIE_GIGATRANSFERS_PER_S))
        raise ValueError(f"PCI Express generation {generation}: known are {known}.")
    return lanes * _PCIE_GIGATRANSFERS_PER_S[generation] * 10**9 * 128 // 130 // 8


def models() -> tuple[GPUModel, ...]:
    """Give every GPU in the catalogue, oldest architecture first."""
    return _read()


def names() -> tuple[str, ...]:
    """Give the name of every GPU in the catalogue."""
    return tuple(model.name for model in models())


def find(name: str) -> GPUModel:
    """Find a GPU by its name, an alias or its product name.

    Case, spaces, punctuation and the words NVIDIA, GeForce and Tesla make no difference. A name
    that fits several GPUs, such as `A100`, is refused: which one is meant changes every answer.

    Raises:
        UnknownGPUError: no GPU has that name; the message lists the known ones.
    """
    wanted = _key(name)
    by_key = {
        _key(known): model
        for model in models()
        for known in (model.name, model.product_name, *model.aliases)
    }
    if wanted in by_key:
        return by_key[wanted]
    raise UnknownGPUError(_explain_unknown(name, wanted, by_key))


def _explain_unknown(name: str, wanted: str, by_key: Mapping[str, GPUModel]) -> str:
    """Say that no GPU has that name, what comes closest, and what there is."""
    family = _distinct(model.name for key, model in by_key.items() if wanted and wanted in key)
    if family:
        hint = f"It could be {' or '.join(family)}: say which."
    else:
        close = difflib.get_close_matches(wanted, by_key, n=1)
        hint = f"Closest: {by_key[close[0]].name}." if close else ""
    unknown = f"No GPU named {name!r} in the catalogue."
    known = f"Known GPUs: {', '.join(names())}."
    return " ".join(filter(None, (unknown, hint, known)))


def _distinct(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _key(name: str) -> str:
    """Reduce a name to what tells GPUs apart: `NVIDIA GeForce RTX 3090` becomes `rtx3090`."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(word for word in words if word not in _MARKETING)


@functools.cache
def _read() -> tuple[GPUModel, ...]:
    text = (resources.files("vramlab") / "gpus.toml").read_text(encoding="utf-8")
    return parse(text)


def parse(text: str) -> tuple[GPUModel, ...]:
    """Read a catalogue in the form of `gpus.toml`.

    Raises:
        ValueError: a figure is missing, unknown, or given twice for one GPU.
    """
    document = tomllib.loads(text)
    return tuple(_model(entry, document) for entry in document["gpu"])


def _model(entry: Mapping[str, Any], document: Mapping[str, Any]) -> GPUModel:
    """Bring together one GPU's own figures, its compute capability's, and every GPU's."""
    name = entry["name"]
    figures: dict[str, Any] = {}
    sources: dict[str, str] = {}

    def take(table: Mapping[str, Any]) -> None:
        found = {key: value for key, value in table.items() if key not in ("source", "without")}
        found |= dict.fromkeys(table.get("without", ()))
        for figure, value in found.items():
            if figure in figures:
                raise ValueError(f"{name}: {figure} is given twice.")
            figures[figure] = tuple(value) if isinstance(value, list) else value
            sources[figure] = table["source"]

    for table in entry["figures"]:
        take(table)
    if "compute_capability" in figures:
        take(document["capability"]["{}.{}".format(*figures["compute_capability"])])
    take(document["every_gpu"])

    apart = {"name", "aliases", "historical_contexts", "sources"}
    wanted = {known.name for known in fields(GPUModel)} - apart
    if figures.keys() != wanted:
        missing, unknown = sorted(wanted - figures.keys()), sorted(figures.keys() - wanted)
        raise ValueError(f"{name}: missing figures {missing}, unknown figures {unknown}.")
    return GPUModel(
        name=name,
        aliases=tuple(entry["aliases"]),
        historical_contexts=tuple(
            HistoricalContext(**context) for context in entry.get("historical_contexts", ())
        ),
        sources=sources,
        **figures,
    )
