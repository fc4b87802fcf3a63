"""Least times: the arithmetic of the catalogue's figures."""

from __future__ import annotations

import pytest

from vramlab import catalogue
from vramlab.cuda_rules import durations

T4 = catalogue.find("T4")  # 320 GB/s, 8.1 TFLOPS, 65 in float16, PCIe 3.0 x16
A100 = catalogue.find("A100-40GB")  # 1555 GB/s, 19.5 TFLOPS, 156 tf32, 312 float16


@pytest.mark.parametrize("gpu", catalogue.models(), ids=lambda gpu: gpu.name)
def test_links_of_the_catalogue(gpu: catalogue.GPUModel) -> None:
    link = catalogue.link_bytes_per_s(gpu.pcie_generation, gpu.pcie_lanes)
    if gpu.host_link_bandwidth_bytes_per_s is not None:  # NVLink-C2C, or memory that both use
        link = gpu.host_link_bandwidth_bytes_per_s
    assert durations.copy_seconds(link, gpu) == 1.0


def test_seconds_are_work_over_rate() -> None:
    assert durations.memory_seconds(640_000_000_000, T4) == 2.0
    assert durations.compute_seconds(8.1e12, T4) == 1.0
    assert durations.compute_seconds(65e12, T4, "float16") == 1.0
    assert durations.compute_seconds(156e12, A100, "tf32") == 1.0
    assert durations.compute_seconds(312e12, A100, "bfloat16") == 1.0
    assert durations.compute_seconds(1978.9e12, catalogue.find("H100"), "float8") == 1.0


def test_a_gpu_without_units_for_a_format_says_what_it_has() -> None:
    said = r"^T4 has no units for bfloat16\. It has: float32, float16\.$"
    with pytest.raises(ValueError, match=said):
        durations.compute_seconds(1.0, T4, "bfloat16")


def test_what_a_gpu_has_units_for() -> None:
    assert durations.arithmetics_of(T4) == ("float32", "float16")
    assert durations.arithmetics_of(A100) == ("float32", "tf32", "float16", "bfloat16")


def test_an_unknown_format_is_refused_by_name() -> None:
    said = r"^No arithmetic named 'int8'\. Known: float32, tf32, float16, bfloat16, float8\.$"
    with pytest.raises(ValueError, match=said):
        durations.peak_flops_per_s(T4, "int8")  # type: ignore[arg-type]


def test_intensity_is_flops_per_byte() -> None:
    # y = x + 1 in float32: one addition, four bytes read, four written
    assert durations.arithmetic_intensity(1, 8) == 0.125
    with pytest.raises(ValueError, match="moved_bytes is 0: intensity needs at least one byte"):
        durations.arithmetic_intensity(1, 0)


def test_the_roof_rises_to_the_ridge_and_then_is_flat() -> None:
    ridge = 8.1e12 / 320e9  # 25.3125 FLOPs per byte
    assert durations.ridge_flops_per_byte(T4) == ridge == 25.3125
    assert durations.roof_flops_per_s(0.125, T4) == 0.125 * 320e9
    assert durations.roof_flops_per_s(ridge, T4) == 8.1e12
    assert durations.roof_flops_per_s(1000.0, T4) == 8.1e12


def test_the_longer_of_memory_and_arithmetic_is_the_least_time() -> None:
    # 8.1e12 FLOPs are a second; 160 GB are half of one, 640 GB two
    assert durations.least_seconds(8.1e12, 160_000_000_000, T4) == 1.0
    assert durations.bound(8.1e12, 160_000_000_000, T4) == "compute"
    assert durations.least_seconds(8.1e12, 640_000_000_000, T4) == 2.0
    assert durations.bound(8.1e12, 640_000_000_000, T4) == "memory"


def test_on_the_ridge_both_take_as_long_and_compute_is_named() -> None:
    assert durations.bound(8.1e12, 320_000_000_000, T4) == "compute"


def test_tensor_cores_turn_work_from_compute_bound_to_memory_bound() -> None:
    # 100 FLOPs per byte: above the T4's ridge of 25.3 in float32, below its 203.1 in float16
    assert durations.bound(100e9, 10**9, T4, "float32") == "compute"
    assert durations.bound(100e9, 10**9, T4, "float16") == "memory"
