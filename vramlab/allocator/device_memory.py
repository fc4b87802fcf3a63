"""The driver's side: one GPU's memory as cudaMalloc, cudaFree, cudaMemGetInfo and VMM see it.

Physical bytes and virtual addresses are kept apart, as in CUDA: `malloc` takes both at once, while
expandable segments reserve addresses first and put pages behind them later.
"""

from __future__ import annotations

from vramlab.allocator.addresses import AddressSpace
from vramlab.cuda_rules.rounding import round_up
from vramlab.errors import OutOfDeviceMemory
from vramlab.units import MIB, format_bytes

PAGE_BYTES = 2 * MIB
"""Granularity and alignment of cudaMalloc (for the sizes that PyTorch asks for) and of
cuMemCreate: what `cuMemGetAllocationGranularity` answers on every GPU since Volta."""

WINDOW_BYTES = 1 << 44
"""Addresses set aside for each GPU, so that, as with CUDA's unified addressing, no two GPUs of a
machine ever hand out the same address: 16 TiB, room for 64 expandable segments on a 192 GB GPU."""


class DeviceMemory:
    """The memory of one GPU, shared by this process, its CUDA context and everybody else.

    Known limitations: cudaMalloc packs requests far below 2 MiB into shared pages; here each takes
    a page of its own. PyTorch's allocator never asks for less than 2 MiB.

    Args:
        total_bytes: what `cudaMemGetInfo` calls total.
        used_by_others_bytes: what other processes hold.
        ordinal: which GPU of the machine this is. It only decides the addresses.
        addresses: other addresses than those of that GPU.
    """

    def __init__(
        self,
        total_bytes: int,
        used_by_others_bytes: int = 0,
        *,
        ordinal: int = 0,
        addresses: AddressSpace | None = None,
    ) -> None:
        if not 0 <= used_by_others_bytes <= total_bytes:
            raise ValueError(
                f"others cannot use {used_by_others_bytes} bytes of a GPU of {total_bytes} bytes"
            )
        self.total_bytes = total_bytes
        self._used_by_others_bytes = used_by_others_bytes
        self._context_bytes = 0
        self._physical_bytes = 0
        self._addresses = addresses or AddressSpace((ordinal + 1) * WINDOW_BYTES, WINDOW_BYTES)

    @property
    def used_by_process_bytes(self) -> int:
        """Add up the CUDA context and all that was allocated: nvidia-smi's number for a process."""
        return self._context_bytes + self._physical_bytes

    @property
    def free_bytes(self) -> int:
        """Return the free memory, as `cudaMemGetInfo` does."""
        return self.total_bytes - self._used_by_others_bytes - self.used_by_process_bytes

    @property
    def context_bytes(self) -> int:
        """Return the memory that the CUDA context, its kernels and library handles hold.

        Raises, when set: OutOfDeviceMemory, if the GPU has not that much left.
        """
        return self._context_bytes

    @context_bytes.setter
    def context_bytes(self, size_bytes: int) -> None:
        self._charge("the CUDA context", size_bytes - self._context_bytes)
        self._context_bytes = size_bytes

    @property
    def used_by_others_bytes(self) -> int:
        """Return what other processes hold. Raises OutOfDeviceMemory like `context_bytes`."""
        return self._used_by_others_bytes

    @used_by_others_bytes.setter
    def used_by_others_bytes(self, size_bytes: int) -> None:
        self._charge("another process", size_bytes - self._used_by_others_bytes)
        self._used_by_others_bytes = size_bytes

    def _charge(self, who: str, growth_bytes: int) -> None:
        if growth_bytes > self.free_bytes:
            raise OutOfDeviceMemory(
                f"CUDA error: out of memory ({who} needs {format_bytes(growth_bytes)} more, "
                f"{format_bytes(self.free_bytes)} of {format_bytes(self.total_bytes)} is free)",
                requested_bytes=growth_bytes,
                segment_bytes=growth_bytes,
            )

    def malloc(self, size_bytes: int) -> int | None:
        """Allocate as cudaMalloc: an address, or None when there is not enough memory."""
        size_bytes = round_up(size_bytes, PAGE_BYTES)
        if size_bytes > self.free_bytes:
            return None
        address = self._addresses.take(size_bytes)
        if address is not None:
            self._physical_bytes += size_bytes
        return address

    def free(self, address: int) -> None:
        """Free what `malloc` returned, as cudaFree."""
        self._physical_bytes -= self._addresses.give_back(address)

    def reserve_addresses(self, size_bytes: int) -> int | None:
        """Reserve addresses with nothing behind them, or None: cuMemAddressReserve."""
        return self._addresses.reserve(size_bytes)

    def release_addresses(self, address: int) -> None:
        """Free what `reserve_addresses` returned, as cuMemAddressFree."""
        self._addresses.give_back(address)

    def map_pages(self, size_bytes: int) -> bool:
        """Put memory behind reserved addresses, a multiple of a page: cuMemCreate and cuMemMap.

        Returns False when there is not enough.
        """
        if size_bytes > self.free_bytes:
            return False
        self._physical_bytes += size_bytes
        return True

    def unmap_pages(self, size_bytes: int) -> None:
        """Take away what `map_pages` gave, as cuMemUnmap and cuMemRelease."""
        self._physical_bytes -= size_bytes
