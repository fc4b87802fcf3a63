"""What the virtual GPU must know about the GPU it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Billions of transfers a second on one lane. Generations 3 to 5 send 128 bits of data as 130.
# Source: PCI Express base specifications 3.0, 4.0 and 5.0.
_PCIE_GIGATRANSFERS_PER_S = {3: 8, 4: 16, 5: 32}


@dataclass(frozen=True)
class HistoricalContext:
    """The size of a CUDA context that was measured with an old driver."""

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

    host_link_bandwidth_bytes_per_s: int | None
    """Bytes a second to the host in one direction, without PCI Express: over NVLink-C2C, or through
    the memory that both use. None: the link is PCI Express."""

    pci_device_id: int
    """Device number in the PCI ID database; NVIDIA's vendor number is 0x10DE. 0: not on PCI."""

    sources: Mapping[str, str] = field(compare=False, repr=False)
    """Where each figure comes from, by field name. "estimated: ..." marks what was not measured."""

    @property
    def pcie_bandwidth_bytes_per_s(self) -> int:
        """Bytes a second between host and GPU in one direction, at best; headers included."""
        return link_bytes_per_s(self.pcie_generation, self.pcie_lanes)

    @property
    def host_bandwidth_bytes_per_s(self) -> int:
        """Bytes a second between host and GPU in one direction, over whichever link it has."""
        return self.host_link_bandwidth_bytes_per_s or self.pcie_bandwidth_bytes_per_s

    @property
    def driver_reserved_bytes(self) -> int:
        """What the driver keeps for itself: NVML's total without `total_bytes`."""
        return self.nvml_total_bytes - self.total_bytes

    def is_estimated(self, figure: str) -> bool:
        """Return whether the figure is an estimate, because no measurement is published."""
        return self.sources[figure].startswith("estimated:")


def link_bytes_per_s(generation: int, lanes: int) -> int:
    """Return bytes a second over PCI Express in one direction, at best, packets' headers counted.

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
