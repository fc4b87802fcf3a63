"""The catalogue: names that people type, figures that fit together, a source for each."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from importlib import resources

import pytest

from vramlab import catalogue
from vramlab.errors import UnknownGPUError
from vramlab.units import MIB, format_bytes

every_gpu = pytest.mark.parametrize("gpu", catalogue.models(), ids=lambda gpu: gpu.name)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("T4", "T4"),
        ("t4", "T4"),
        ("Tesla T4", "T4"),
        ("v100 16gb", "V100-16GB"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("3060", "RTX-3060"),
        ("RTX 3090", "RTX-3090"),
        ("rtx3090", "RTX-3090"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("nvidia l4", "L4"),
        ("a10", "A10"),
        ("A100_40GB", "A100-40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("h200", "H200"),
        ("B200", "B200"),
    ],
)
def test_find_takes_the_names_people_use(typed: str, name: str) -> None:
    assert catalogue.find(typed).name == name


@every_gpu
def test_every_name_of_a_gpu_finds_that_gpu(gpu: catalogue.GPUModel) -> None:
    # Were a name shared by two GPUs, one of them would be found under the other's.
    for name in (gpu.name, gpu.product_name, *gpu.aliases):
        assert catalogue.find(name) is gpu


def test_a_gpu_is_not_taken_for_its_relative() -> None:
    with pytest.raises(UnknownGPUError, match=r"No GPU named 'RTX 3090 Ti'.* Closest: RTX-3090\."):
        catalogue.find("RTX 3090 Ti")


def test_a_name_of_several_gpus_asks_which() -> None:
    with pytest.raises(UnknownGPUError, match="It could be A100-40GB or A100-80GB: say which"):
        catalogue.find("A100")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownGPUError) as caught:
        catalogue.find("Voodoo2")
    assert str(caught.value) == (
        "No GPU named 'Voodoo2' in the catalogue. Known GPUs: T4, V100-16GB, V100-32GB, RTX-3060, "
        "RTX-3090, A10, A100-40GB, A100-80GB, RTX-4090, L4, H100, H200, B200."
    )


@pytest.mark.parametrize("nothing", ["", "NVIDIA", "--"])
def test_a_name_that_says_nothing_finds_nothing(nothing: str) -> None:
    with pytest.raises(UnknownGPUError, match=r"in the catalogue\. Known GPUs: T4"):
        catalogue.find(nothing)


@pytest.mark.parametrize(
    ("name", "capacity"),
    [
        # As "has a total capacity of ..." says in out-of-memory messages that people published.
        ("T4", "14.74 GiB"),
        ("V100-16GB", "15.77 GiB"),
        ("V100-32GB", "31.75 GiB"),
        ("RTX-3090", "23.55 GiB"),
        ("A100-40GB", "39.39 GiB"),
        ("RTX-4090", "23.52 GiB"),
        ("H100", "79.18 GiB"),
        ("H200", "139.80 GiB"),
        ("B200", "178.35 GiB"),
    ],
)
def test_capacity_reads_as_in_published_messages(name: str, capacity: str) -> None:
    assert format_bytes(catalogue.find(name).total_bytes) == capacity


@every_gpu
def test_every_figure_names_its_source(gpu: catalogue.GPUModel) -> None:
    without_source = {"name", "aliases", "historical_contexts", "sources"}
    figures = {field.name for field in dataclasses.fields(gpu)} - without_source
    assert set(gpu.sources) == figures
    for figure, source in gpu.sources.items():
        assert len(source) > 20, f"{figure}: {source!r}"
    for context in gpu.historical_contexts:
        assert context.source
        assert context.conditions


@every_gpu
def test_the_driver_keeps_some_memory_and_the_context_fits(gpu: catalogue.GPUModel) -> None:
    assert gpu.total_bytes + gpu.driver_reserved_bytes == gpu.nvml_total_bytes
    # What drivers keep, over all GPUs here: from 1.4 % (V100) to 2.3 % (RTX 3060).
    assert 0 < gpu.driver_reserved_bytes < gpu.nvml_total_bytes * 3 // 100
    assert 0 < gpu.context_bytes < gpu.total_bytes // 10


@every_gpu
def test_memory_bandwidth_agrees_with_the_clock(gpu: catalogue.GPUModel) -> None:
    # Two transfers a clock over the whole bus; datasheets round, the H200's downwards by 2.4 %.
    by_clock = 2 * gpu.memory_clock_rate_khz * 1000 * gpu.memory_bus_width_bits // 8
    assert gpu.memory_bandwidth_bytes_per_s == pytest.approx(by_clock, rel=0.03)


@every_gpu
def test_fp32_rate_agrees_with_cores_and_clock(gpu: catalogue.GPUModel) -> None:
    # A fused multiply-add is two operations; cores of a multiprocessor by architecture.
    cores = {(7, 0): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 9): 128, (9, 0): 128}
    per_multiprocessor = cores.get(gpu.compute_capability, 128)
    rate = 2 * gpu.multiprocessors * per_multiprocessor * gpu.clock_rate_khz * 1000
    assert gpu.fp32_flops_per_s == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize(
    ("name", "measured_on", "scaled"),
    [
        ("T4", "RTX-4090", True),
        ("L4", "RTX-4090", True),
        ("RTX-3060", "RTX-3090", True),
        ("A10", "RTX-3090", True),
        ("V100-16GB", "H100", True),
        ("V100-32GB", "H100", True),
        ("A100-40GB", "H100", True),
        ("A100-80GB", "H100", True),
    ],
)
def test_estimated_contexts_are_what_their_source_says(
    name: str, measured_on: str, scaled: bool
) -> None:
    gpu, reference = catalogue.find(name), catalogue.find(measured_on)
    assert gpu.is_estimated("context_bytes")
    assert not reference.is_estimated("context_bytes")
    share = gpu.multiprocessors / reference.multiprocessors
    assert gpu.context_bytes == round(reference.context_bytes / MIB * share) * MIB
    if scaled:
        assert f"{gpu.multiprocessors}/{reference.multiprocessors}" in gpu.sources["context_bytes"]
    else:
        assert share == 1


def test_the_documents_contexts_are_kept_as_history() -> None:
    # Document 003: "3090, CUDA 11.4: 1639 MB; V100, CUDA 10.2: 1351 MB", where MB means MiB.
    (rtx_3090,) = catalogue.find("RTX-3090").historical_contexts
    assert (rtx_3090.context_bytes, "CUDA 11.4" in rtx_3090.conditions) == (1639 * MIB, True)
    for name in ("V100-16GB", "V100-32GB"):
        (v100,) = catalogue.find(name).historical_contexts
        assert (v100.context_bytes, "CUDA 10.2" in v100.conditions) == (1351 * MIB, True)


def test_pcie_bandwidth_is_lanes_times_rate() -> None:
    # 16 lanes x 16 GT/s x 128/130 bits / 8 = 31.5 GB/s
    assert catalogue.find("A10").pcie_bandwidth_bytes_per_s == 31_507_692_307


def test_what_a_gpu_lacks_is_none() -> None:
    t4, h100 = catalogue.find("T4"), catalogue.find("H100")
    assert (t4.bf16_tensor_flops_per_s, t4.nvlink_bandwidth_bytes_per_s) == (None, None)
    assert h100.fp8_tensor_flops_per_s == 1978.9e12


def test_a_model_cannot_be_changed() -> None:
    gpu = catalogue.find("T4")
    with pytest.raises(dataclasses.FrozenInstanceError):
        gpu.total_bytes = 0  # type: ignore[misc]


def test_a_model_travels_between_processes_and_is_a_key() -> None:
    gpu = catalogue.find("T4")
    travelled = pickle.loads(pickle.dumps(gpu))
    assert travelled == gpu
    assert {gpu: "found"}[travelled] == "found"


@pytest.fixture
def text() -> str:
    return (resources.files("vramlab") / "gpus.toml").read_text(encoding="utf-8")


def test_a_missing_figure_is_refused(text: str) -> None:
    lacking = text.replace("context_bytes = 559_939_584", "", 1)
    with pytest.raises(ValueError, match=r"H100: missing figures \['context_bytes'\]"):
        catalogue.parse(lacking)


def test_a_misspelt_figure_is_refused(text: str) -> None:
    misspelt = text.replace("pci_device_id = 0x1EB8", "pci_device = 0x1EB8")
    with pytest.raises(ValueError, match=r"T4: missing .*'pci_device_id'.* unknown .*'pci_device'"):
        catalogue.parse(misspelt)


def test_a_figure_given_twice_is_refused(text: str) -> None:
    twice = text.replace("pci_device_id = 0x1EB8", "pci_device_id = 0x1EB8\nmultiprocessors = 41")
    with pytest.raises(ValueError, match="T4: multiprocessors is given twice"):
        catalogue.parse(twice)


def test_the_catalogue_imports_no_torch() -> None:
    code = "import sys, vramlab.catalogue as c; c.models(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("generation", "lanes", "expected"),
    [
        # lanes * 10**9 transfers/s * 128/130 / 8 bits, rounded down at each division
        (3, 16, 15_753_846_153),
        (4, 16, 31_507_692_307),
        (5, 16, 63_015_384_615),
        (4, 8, 15_753_846_153),  # twice the rate on half the lanes
        (3, 1, 984_615_384),
    ],
)
def test_link_is_lanes_times_rate(generation: int, lanes: int, expected: int) -> None:
    assert catalogue.link_bytes_per_s(generation, lanes) == expected


def test_link_refuses_generations_that_are_encoded_otherwise() -> None:
    with pytest.raises(ValueError, match=r"^PCI Express generation 2: known are 3, 4, 5\.$"):
        catalogue.link_bytes_per_s(2, 16)
