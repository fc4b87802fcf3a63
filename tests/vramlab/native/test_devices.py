"""The GPUs that the substitutes describe, through the runtime, the driver and NVML."""

from __future__ import annotations

import pytest

from vramlab import catalogue
from vramlab.units import MIB

COUNT = """
count = c_int(-1)
answer = cuda.cudaGetDeviceCount(byref(count)), count.value, driver.cuInit(0)
"""


def test_without_a_description_there_is_no_gpu(answer) -> None:
    assert answer(COUNT, gpu=None) == [100, 0, 100]  # cudaErrorNoDevice


@pytest.mark.parametrize(
    ("visible", "count"), [("", 0), ("0", 1), ("2,1", 2), ("1,7,0", 1), ("-1", 0), ("0,x", 1)]
)
def test_cuda_visible_devices_counts_up_to_the_first_bad_one(answer, visible, count) -> None:
    found = answer(COUNT, count=3, variables={"CUDA_VISIBLE_DEVICES": visible})
    assert found[1] == count


@pytest.mark.parametrize(
    "name",
    [
        *(gpu.name for gpu in catalogue.common()),
        *("RTX-5090", "B300", "Jetson-AGX-Thor", "H100-1g.10gb", "L40S,sms=100"),
    ],
)
def test_attributes_are_the_catalogues(answer, name: str) -> None:
    gpu = catalogue.find(name)
    expected = {
        1: gpu.max_threads_per_block,
        16: gpu.multiprocessors,
        38: gpu.l2_cache_bytes,
        39: gpu.max_threads_per_multiprocessor,
        75: gpu.compute_capability[0],
        76: gpu.compute_capability[1],
        81: gpu.shared_memory_per_multiprocessor_bytes,
        97: gpu.shared_memory_per_block_optin_bytes,
        106: gpu.max_blocks_per_multiprocessor,
    }
    found = answer(
        f"""
        answer = []
        for number in {list(expected)}:
            value = c_int()
            call(cuda.cudaDeviceGetAttribute, byref(value), number, 0)
            answer.append(value.value)
        """,
        gpu=name,
    )
    assert found == list(expected.values())


def test_every_gpu_has_memory_of_its_own(answer) -> None:
    used = answer(
        """
        used = []
        full = memory()[0]
        call(cuda.cudaSetDevice, 1)
        address = malloc(10 * MIB)
        used.append(full - memory()[0])
        call(cuda.cudaSetDevice, 0)
        used.append(full - memory()[0])
        can = c_int()
        call(cuda.cudaDeviceCanAccessPeer, byref(can), 0, 1)
        peers = [can.value] + [cuda.cudaDeviceEnablePeerAccess(1, 0) for _ in range(2)]
        copy(address, b"abc", 3)
        back = ctypes.create_string_buffer(3)
        here = malloc(MIB)
        call(cuda.cudaMemcpyPeerAsync, here, 0, address, 1, c_size_t(3), None)
        copy(back, here, 3)
        answer = used, peers, back.raw.decode()
        """,
        count=2,
    )
    assert used == [[10 * MIB, 0], [1, 0, 704], "abc"]  # 704: access is enabled already


def test_occupancy_is_bound_by_threads_blocks_and_shared_memory(answer) -> None:
    """An A100's multiprocessor: 2,048 threads, 32 blocks, 164 KiB, of which each block costs 1."""
    assert answer(
        """
        def blocks(threads, shared):
            value = c_int()
            function = cuda.cudaOccupancyMaxActiveBlocksPerMultiprocessor
            call(function, byref(value), None, threads, c_size_t(shared))
            return value.value
        answer = [blocks(*each) for each in
                  [(1024, 0), (32, 0), (100, 0), (128, 40 * 1024), (128, 200 * 1024), (2048, 0)]]
        """,
        gpu="A100-40GB",
    ) == [2, 32, 2048 // 128, 164 // 41, 0, 0]


def test_nvml_sees_the_context_and_the_memory(answer) -> None:
    gpu = catalogue.find("T4")
    before, after, name, processes = answer("""
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        call(nvml.nvmlInit_v2)
        handle = c_void_p()
        call(nvml.nvmlDeviceGetHandleByIndex_v2, 0, byref(handle))
        def used():
            numbers = (c_uint64 * 5)()
            call(nvml.nvmlDeviceGetMemoryInfo_v2, handle, numbers)
            return list(numbers)[1:]
        before = used()
        malloc(2 * MIB)
        name = ctypes.create_string_buffer(64)
        call(nvml.nvmlDeviceGetName, handle, name, 64)
        count, entries = c_uint(4), (c_uint64 * 8)()
        call(nvml.nvmlDeviceGetComputeRunningProcesses, handle, byref(count), entries)
        import os
        processes = [count.value, entries[0] - os.getpid(), entries[1]]
        answer = before, used(), name.value.decode(), processes
    """)
    reserved_bytes = gpu.driver_reserved_bytes
    used_bytes = gpu.context_bytes + 2 * MIB
    assert before == [gpu.nvml_total_bytes, reserved_bytes, gpu.total_bytes, 0]
    assert after == [
        gpu.nvml_total_bytes,
        reserved_bytes,
        gpu.total_bytes - used_bytes,
        used_bytes,
    ]
    assert name == gpu.product_name
    assert processes == [1, 0, used_bytes]
