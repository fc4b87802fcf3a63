"""The functions of NVML's C library, in Python: they fill ctypes structures as the library does.

An `NvmlLibrary` takes the place of the shared library that nvidia-ml-py loads. Functions are found
by the name that the C library exports, take the ctypes objects that it would be handed, and answer
an error code. What the virtual GPU cannot know, because no time passes on it, is answered as NVML
does for hardware without a sensor: not supported. Functions that are not here do not exist, which
nvidia-ml-py turns into `NVMLError_FunctionNotFound`.

Source of names, codes and structures: nvml.h of the CUDA Toolkit 13, as nvidia-ml-py 13 has it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from vramlab.catalogue import GPUModel
from vramlab.gpu.core.identities import device_uuid

# The first driver for CUDA 13.0. Source: CUDA Toolkit 13.0 release notes, table 2.
DRIVER_VERSION = "580.65.06"
CUDA_DRIVER_VERSION = 13000
NVML_VERSION = f"13.{DRIVER_VERSION}"

# nvmlReturn_t in nvml.h.
SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
ARGUMENT_VERSION_MISMATCH = 25

# `nvmlMemory_v2` in nvml.h: the size of the structure, and 2 in the highest byte.
_MEMORY_INFO_VERSION_2 = 0x02000028

# What NVML says of a process on a GPU that is not divided (MIG).
_NO_INSTANCE = 0xFFFFFFFF

_NVIDIA_VENDOR_ID = 0x10DE
_FIRST_PCI_BUS = 7


class NvmlDevice(Protocol):
    """What NVML is asked about one GPU."""

    @property
    def model(self) -> GPUModel:
        """What GPU it is."""

    @property
    def used_bytes(self) -> int:
        """What this process takes of `model.total_bytes`: context and reserved memory."""


def pci_bus(index: int) -> int:
    """Return the PCI bus of GPU `index`, in domain 0, device 0."""
    return _FIRST_PCI_BUS + index


class _Refused(Exception):
    """Carries the error code that a C function would return."""

    def __init__(self, code: int) -> None:
        self.code = code


class _Device:
    """A GPU under the handle that programs hold: the address of a few bytes that stay in place."""

    def __init__(self, index: int, gpu: NvmlDevice) -> None:
        self.index = index
        self.gpu = gpu
        self.model = gpu.model
        self._anchor = ctypes.create_string_buffer(16)
        self.address = ctypes.addressof(self._anchor)
        self.uuid = f"GPU-{device_uuid(self.model, index)}"


_System = Callable[..., None]
_SYSTEM: dict[str, _System] = {}
_DEVICE: dict[str, Callable[..., None]] = {}


def _system(*names: str) -> Callable[[_System], _System]:
    """Register a function of the library as a whole; it is given the library."""
    return functools.partial(_register, _SYSTEM, names)


def _device(*names: str) -> Callable[[_System], _System]:
    """Register a function of one GPU; it gets the `_Device` instead of the handle."""
    return functools.partial(_register, _DEVICE, names)


def _register(table: dict[str, _System], names: Sequence[str], function: _System) -> _System:
    table.update(dict.fromkeys(names, function))
    return function


class NvmlLibrary:
    """Stands in for `libnvidia-ml.so.1`: `getattr(library, "nvmlDeviceGetName")` can be called.

    Args:
        devices: the GPUs, in the order of their indices.
        initializations: how often the program has initialised NVML and not shut it down.
    """

    def __init__(self, devices: Sequence[NvmlDevice], initializations: int = 0) -> None:
        self.devices = [_Device(index, gpu) for index, gpu in enumerate(devices)]
        self._initializations = initializations
        self._lock = threading.Lock()
        # Partial objects, because nvidia-ml-py sets `restype` on what it finds.
        for name, function in _SYSTEM.items():
            setattr(self, name, functools.partial(self._call_system, name, function))
        for name, function in _DEVICE.items():
            setattr(self, name, functools.partial(self._call_device, function))
        # These two work before nvmlInit.
        self.nvmlInitWithFlags = functools.partial(self._initialize)
        self.nvmlErrorString = functools.partial(_error_string)

    def _initialize(self, flags: int) -> int:
        with self._lock:
            self._initializations += 1
        return SUCCESS

    def nvmlShutdown(self) -> int:  # noqa: N802 - the C library's name
        """Undo one initialisation."""
        with self._lock:
            if self._initializations == 0:
                return UNINITIALIZED
            self._initializations -= 1
        return SUCCESS

    def _call_system(self, name: str, function: _System, *args: Any) -> int:
        return self._answer(lambda: function(self, *args))

    def _call_device(self, function: _System, handle: Any, *args: Any) -> int:
        return self._answer(lambda: function(self._device_of(handle), *args))

    def _answer(self, question: Callable[[], None]) -> int:
        if self._initializations == 0:
            return UNINITIALIZED
        try:
            question()
        except _Refused as refused:
            return refused.code
        return SUCCESS

    def _device_of(self, handle: Any) -> _Device:
        address = ctypes.cast(handle, ctypes.c_void_p).value
        for device in self.devices:
            if device.address == address:
                return device
        raise _Refused(INVALID_ARGUMENT)


def _write(out: Any, value: int) -> None:
    """Store a number where `byref(number)` points."""
    out._obj.value = value


def _write_text(buffer: Any, size: Any, text: str) -> None:
    """Store text in a buffer of `size` bytes, with the zero that ends it."""
    encoded = text.encode()
    if len(encoded) >= size.value:
        raise _Refused(INSUFFICIENT_SIZE)
    buffer.value = encoded


def _write_handle(out: Any, device: _Device) -> None:
    """Make the handle that `byref(handle)` points to that of the device."""
    ctypes.c_void_p.from_buffer(out._obj).value = device.address


def _error_string(code: int) -> bytes:
    """Return `nvmlErrorString`, for the codes that nvidia-ml-py has no text of its own for."""
    texts = {
        SUCCESS: b"Success",
        ARGUMENT_VERSION_MISMATCH: b"Argument version mismatch",
    }
    return texts.get(code, b"Unknown Error")


# ---- the library as a whole ----


@_system("nvmlSystemGetDriverVersion")
def _driver_version(library: NvmlLibrary, buffer: Any, size: Any) -> None:
    _write_text(buffer, size, DRIVER_VERSION)


@_system("nvmlSystemGetNVMLVersion")
def _nvml_version(library: NvmlLibrary, buffer: Any, size: Any) -> None:
    _write_text(buffer, size, NVML_VERSION)


@_system("nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2")
def _cuda_driver_version(library: NvmlLibrary, out: Any) -> None:
    _write(out, CUDA_DRIVER_VERSION)


@_system("nvmlSystemGetProcessName")
def _process_name(library: NvmlLibrary, pid: Any, buffer: Any, size: Any) -> None:
    if pid.value != os.getpid():
        raise _Refused(NOT_FOUND)
    _write_text(buffer, size, sys.executable)


@_system("nvmlDeviceGetCount_v2")
def _count(library: NvmlLibrary, out: Any) -> None:
    _write(out, len(library.devices))


@_system("nvmlDeviceGetHandleByIndex_v2")
def _handle_by_index(library: NvmlLibrary, index: Any, out: Any) -> None:
    if index.value >= len(library.devices):
        raise _Refused(INVALID_ARGUMENT)
    _write_handle(out, library.devices[index.value])


@_system("nvmlDeviceGetHandleByUUID")
def _handle_by_uuid(library: NvmlLibrary, wanted: Any, out: Any) -> None:
    for device in library.devices:
        if wanted.value == device.uuid.encode():
            return _write_handle(out, device)
    raise _Refused(NOT_FOUND)


@_system("nvmlDeviceGetHandleByPciBusId_v2")
def _handle_by_pci_bus_id(library: NvmlLibrary, wanted: Any, out: Any) -> None:
    written = re.fullmatch(rb"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):00(?:\.0)?", wanted.value)
    if written is None:
        raise _Refused(INVALID_ARGUMENT)
    domain, bus = int(written[1] or b"0", 16), int(written[2], 16)
    for device in library.devices:
        if (domain, bus) == (0, pci_bus(device.index)):
            return _write_handle(out, device)
    raise _Refused(NOT_FOUND)


# ---- one GPU ----


@_device("nvmlDeviceGetName")
def _name(device: _Device, buffer: Any, size: Any) -> None:
    _write_text(buffer, size, device.model.product_name)


@_device("nvmlDeviceGetUUID")
def _uuid(device: _Device, buffer: Any, size: Any) -> None:
    _write_text(buffer, size, device.uuid)


@_device("nvmlDeviceGetPciInfo_v3")
def _pci_info(device: _Device, out: Any) -> None:
    info, bus = out._obj, pci_bus(device.index)
    info.busIdLegacy = f"0000:{bus:02X}:00.0".encode()
    info.busId = f"00000000:{bus:02X}:00.0".encode()
    info.domain, info.bus, info.device = 0, bus, 0
    info.pciDeviceId = device.model.pci_device_id << 16 | _NVIDIA_VENDOR_ID


@_device("nvmlDeviceGetMemoryInfo")
def _memory_info(device: _Device, out: Any) -> None:
    """Version 1 counts what the driver keeps for itself as used (nvml.h, nvmlMemory_t)."""
    memory, model = out._obj, device.model
    memory.total = model.nvml_total_bytes
    memory.used = model.driver_reserved_bytes + device.gpu.used_bytes
    memory.free = memory.total - memory.used


@_device("nvmlDeviceGetMemoryInfo_v2")
def _memory_info_v2(device: _Device, out: Any) -> None:
    """Version 2 counts it apart, as reserved; nvidia-smi shows this version (nvmlMemory_v2_t)."""
    memory, model = out._obj, device.model
    if memory.version != _MEMORY_INFO_VERSION_2:
        raise _Refused(ARGUMENT_VERSION_MISMATCH)
    memory.total = model.nvml_total_bytes
    memory.reserved = model.driver_reserved_bytes
    memory.used = device.gpu.used_bytes
    memory.free = memory.total - memory.reserved - memory.used


@_device("nvmlDeviceGetUtilizationRates")
def _utilization_rates(device: _Device, out: Any) -> None:
    """No time passes on a virtual GPU, so it is never caught working."""
    out._obj.gpu = out._obj.memory = 0


@_device("nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3")
def _compute_processes(device: _Device, count: Any, processes: Any) -> None:
    """List this process, once it has a context; no other process is on a virtual GPU."""
    used_bytes = device.gpu.used_bytes
    running = 1 if used_bytes else 0
    room = 0 if processes is None else count._obj.value
    _write(count, running)
    if room < running:
        raise _Refused(INSUFFICIENT_SIZE)
    if running:
        processes[0].pid = os.getpid()
        processes[0].usedGpuMemory = used_bytes
        processes[0].gpuInstanceId = processes[0].computeInstanceId = _NO_INSTANCE


@_device(
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
)
def _no_processes(device: _Device, count: Any, processes: Any) -> None:
    _write(count, 0)


@_device("nvmlDeviceGetSerial")
def _serial(device: _Device, buffer: Any, size: Any) -> None:
    """Boards for data centres have a serial number that NVML can read, GeForce boards have not."""
    if "GeForce" in device.model.product_name:
        raise _Refused(NOT_SUPPORTED)
    _write_text(buffer, size, f"{device_uuid(device.model, device.index).int % 10**13:013d}")


@_device("nvmlDeviceGetMaxClockInfo")
def _max_clock_info(device: _Device, clock: Any, out: Any) -> None:
    """Graphics, multiprocessor and memory clocks in MHz; the video clock is not modelled."""
    graphics = device.model.clock_rate_khz // 1000
    clocks = {0: graphics, 1: graphics, 2: device.model.memory_clock_rate_khz // 1000}
    if clock.value not in clocks:
        raise _Refused(NOT_SUPPORTED)
    _write(out, clocks[clock.value])


def _numbers(read: Callable[[_Device], Sequence[int]]) -> _System:
    """Make a function that only writes numbers, in the order of its arguments."""

    def write(device: _Device, *outs: Any) -> None:
        for out, value in zip(outs, read(device), strict=True):
            _write(out, value)

    return write


_DEVICE |= {
    "nvmlDeviceGetIndex": _numbers(lambda device: [device.index]),
    "nvmlDeviceGetMinorNumber": _numbers(lambda device: [device.index]),
    "nvmlDeviceGetCudaComputeCapability": _numbers(lambda device: device.model.compute_capability),
    "nvmlDeviceGetMemoryBusWidth": _numbers(lambda device: [device.model.memory_bus_width_bits]),
    "nvmlDeviceGetComputeMode": _numbers(lambda device: [0]),  # every process may use the GPU
    "nvmlDeviceGetDisplayActive": _numbers(lambda device: [0]),
    **dict.fromkeys(
        (
            "nvmlDeviceGetCurrPcieLinkGeneration",
            "nvmlDeviceGetMaxPcieLinkGeneration",
            "nvmlDeviceGetGpuMaxPcieLinkGeneration",
        ),
        _numbers(lambda device: [device.model.pcie_generation]),
    ),
    **dict.fromkeys(
        ("nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth"),
        _numbers(lambda device: [device.model.pcie_lanes]),
    ),
}


@_device(
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetDecoderUtilization",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetPcieThroughput",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetTotalEnergyConsumption",
)
def _not_supported(device: _Device, *outs: Any) -> None:
    raise _Refused(NOT_SUPPORTED)
