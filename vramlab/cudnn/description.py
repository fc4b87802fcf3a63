"""Describe a GPU of the catalogue to cuDNN."""

from __future__ import annotations

import json

from vramlab.catalogue import GPUModel


def cudnn_json(model: GPUModel, cuda_version: int) -> str:
    """Describe the GPU as cuDNN's device properties descriptor takes it.

    Source of the members: cuDNN backend API, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR; what its log
    (CUDNN_LOGLEVEL_DBG=3) names as missing.

    Args:
        model: the GPU.
        cuda_version: 1000 * major + 10 * minor.
    """
    major, minor = model.compute_capability
    members = {
        "deviceVer": 100 * major + 10 * minor,
        "driverVer": cuda_version,
        "maxGridSize": [2147483647, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": model.registers_per_multiprocessor,
        "multiProcessorCount": model.multiprocessors,
        "smCountOrigin": 0,
        "warpSize": model.warp_size,
        "maxSharedMemoryPerBlock": model.shared_memory_per_block_bytes,
        "maxSharedMemoryPerBlockOptin": model.shared_memory_per_block_optin_bytes,
        "oversizedSharedMemoryPerBlock": 0,
        "reservedSharedMemoryPerBlock": 1024,
        "maxRegistersPerSM": model.registers_per_multiprocessor,
        "maxCtasPerSM": model.max_blocks_per_multiprocessor,
        "maxThreadsPerBlock": model.max_threads_per_block,
        "maxThreadsPerSM": model.max_threads_per_multiprocessor,
        "pciDeviceId": 0,
        "isTccDriver": 0,
        "supportCoopLaunch": 1,
        "smClockRateKHz": model.clock_rate_khz,
        "memClockRateKHz": model.memory_clock_rate_khz,
        "memoryBusWidth": model.memory_bus_width_bits,
        "l2CacheSize": model.l2_cache_bytes,
        "deviceName": model.product_name,
        "cudaDeviceId": 0,
        "totalGlobalMem": model.total_bytes,
    }
    return json.dumps(members, separators=(",", ":"))
