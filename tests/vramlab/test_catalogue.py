"""The catalogue: names that people type, figures that fit together, a source for each."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import tomllib
from importlib import resources

import pytest

from vramlab import catalogue
from vramlab.errors import GPUFigureError, UnknownGPUError
from vramlab.gpu_table import FIGURES, GPUTable
from vramlab.units import GIB, MIB, format_bytes

every_gpu = pytest.mark.parametrize("gpu", catalogue.models(), ids=lambda gpu: gpu.name)
SHARES_MEMORY = ("GB10", "Jetson-")  # the GPU uses the system's memory


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("t4", "T4"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("3060", "RTX-3060"),
        ("A100_40GB", "A100-40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("4090", "RTX-4090"),
        ("RTX 4090 24GB", "RTX-4090"),
        ("4070 Ti Super", "RTX-4070-Ti-SUPER"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX-4090-Laptop"),
        ("1660 ti", "GTX-1660-Ti"),
        ("RTX 3080 12GB", "RTX-3080-12GB"),
        ("a6000", "RTX-A6000"),
        ("a100-sxm4-80gb", "A100-80GB"),
        ("A100 80GB PCIe", "A100-PCIE-80GB"),
        ("h100 80gb pcie", "H100-PCIE"),
        ("H100 NVL", "H100-NVL"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("V100S", "V100S-PCIE-32GB"),
        ("a100 40g", "A100-40GB"),
        ("3080 Laptop 16GB", "RTX-3080-16GB-Laptop"),
        ("2080 super mobile", "RTX-2080-SUPER-Laptop"),
    ],
)
def test_find_takes_the_names_people_use(typed: str, name: str) -> None:
    assert catalogue.find(typed).name == name


@pytest.fixture
def text() -> str:
    return (resources.files("vramlab") / "gpus.toml").read_text(encoding="utf-8")


@every_gpu
def test_every_name_of_a_gpu_finds_that_gpu(gpu: catalogue.GPUModel) -> None:
    # Were a name shared by two GPUs, one of them would be found under the other's.
    for name in (gpu.name, *gpu.aliases):
        assert catalogue.find(name) is gpu
    # Two GPUs can have the same product name: an RTX 4060 Ti with 8 GB, and one with 16 GB.
    product = gpu.product_name.lower()
    alike = [other.name for other in catalogue.models() if other.product_name.lower() == product]
    try:
        found = catalogue.find(gpu.product_name).name
    except UnknownGPUError as unknown:
        found = str(unknown)
        assert len(alike) > 1
        assert "Did you mean" in found
    assert any(name in found for name in alike)


@pytest.mark.parametrize(
    ("typed", "could_be"),
    [
        ("A100", "A100-40GB, A100-80GB, A100-PCIE-40GB or A100-PCIE-80GB"),
        ("RTX 4060 Ti", "RTX-4060-Ti-8GB or RTX-4060-Ti-16GB"),
        ("NVIDIA GeForce RTX 4060 Ti", "RTX-4060-Ti-8GB or RTX-4060-Ti-16GB"),
        ("3080 mobile", "RTX-3080-8GB-Laptop or RTX-3080-16GB-Laptop"),
    ],
)
def test_a_name_of_several_gpus_asks_which(typed: str, could_be: str) -> None:
    with pytest.raises(UnknownGPUError, match=rf"Did you mean {could_be}\?"):
        catalogue.find(typed)


def test_another_size_of_a_known_gpu_is_a_figure_to_change() -> None:
    with pytest.raises(UnknownGPUError) as caught:
        catalogue.find("RTX 4090 48GB")
    (written,) = re.findall("'(RTX-4090,.+)'", str(caught.value))
    assert catalogue.find(written).total_bytes == 48 * GIB


def test_an_unknown_name_says_where_the_known_ones_are() -> None:
    with pytest.raises(UnknownGPUError) as caught:
        catalogue.find("Voodoo2")
    assert str(caught.value) == (
        "No GPU named 'Voodoo2' in the catalogue. "
        f"`vramlab gpus` lists all {len(catalogue.names())}."
    )


@pytest.mark.parametrize("nothing", ["", "NVIDIA", "--", "RTX", "GeForce RTX"])
def test_a_name_that_says_nothing_finds_nothing(nothing: str) -> None:
    with pytest.raises(UnknownGPUError, match=r"in the catalogue\. .*`vramlab gpus` lists all"):
        catalogue.find(nothing)


def test_entries_are_found_without_parsing_them(text: str) -> None:
    entries = tomllib.loads(text)["gpu"]
    table = GPUTable(text)
    assert list(table.names) == [entry["name"] for entry in entries]
    assert len(set(table.names)) == len(entries)
    assert [alias for alias, name in table.spellings() if alias != name] == [
        alias for entry in entries for alias in entry["aliases"]
    ]
    assert [product for product, _ in table.product_names()] == [
        figures["product_name"]
        for entry in entries
        for figures in entry["figures"]
        if "product_name" in figures
    ]


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
    if gpu.name.startswith(SHARES_MEMORY):
        assert gpu.driver_reserved_bytes == 0
    else:
        # From 0.3 % (B300) to 9.3 % (380 MiB of a GTX 1650's 4 GiB), nowhere 1.5 GiB.
        assert 0 < gpu.driver_reserved_bytes < gpu.nvml_total_bytes // 10
        assert gpu.driver_reserved_bytes < 1.5 * GIB
    assert 0 < gpu.context_bytes < gpu.total_bytes // 10


@every_gpu
def test_memory_bandwidth_agrees_with_the_clock(gpu: catalogue.GPUModel) -> None:
    # Two transfers a clock over the whole bus; datasheets round, the H200's downwards by 2.4 %.
    by_clock = 2 * gpu.memory_clock_rate_khz * 1000 * gpu.memory_bus_width_bits // 8
    if gpu.name == "GB10":  # its device properties count transfers, not clocks
        by_clock //= 2
    assert gpu.memory_bandwidth_bytes_per_s == pytest.approx(by_clock, rel=0.03)


@every_gpu
def test_fp32_rate_agrees_with_cores_and_clock(gpu: catalogue.GPUModel) -> None:
    # A fused multiply-add is two operations; cores of a multiprocessor by architecture.
    cores = {(7, 0): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 9): 128, (9, 0): 128}
    per_multiprocessor = cores.get(gpu.compute_capability, 128)
    rate = 2 * gpu.multiprocessors * per_multiprocessor * gpu.clock_rate_khz * 1000
    # The H20's datasheet has 44 TFLOPS, more than 78 multiprocessors reach at any clock in a log.
    assert gpu.fp32_flops_per_s == pytest.approx(rate, rel=0.12 if gpu.name == "H20" else 0.03)


def test_a_missing_figure_is_refused(text: str) -> None:
    lacking = text.replace("context_bytes = 559_939_584", "", 1)
    with pytest.raises(ValueError, match=r"H100: missing figures \['context_bytes'\]"):
        catalogue.parse(lacking)


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


@every_gpu
def test_estimates_name_gpus_of_the_catalogue_and_their_figures(gpu: catalogue.GPUModel) -> None:
    found = re.search(
        r"nvidia-smi's (\d+) MiB less the (\d+) MiB .* keeps of an? ([\w-]+)",
        gpu.sources["total_bytes"],
    )
    if found is None:
        return
    nvml_mib, kept_mib, other = int(found[1]), int(found[2]), catalogue.find(found[3])
    assert gpu.is_estimated("total_bytes")
    assert not other.is_estimated("total_bytes")
    assert (gpu.nvml_total_bytes, gpu.total_bytes) == (nvml_mib * MIB, (nvml_mib - kept_mib) * MIB)
    if "in a public log" not in gpu.sources["total_bytes"]:
        assert round(other.driver_reserved_bytes / MIB) == kept_mib


def test_what_a_family_says_is_scaled() -> None:
    gpu = catalogue.find("RTX-5090")
    # 512 FLOP a clock and multiprocessor x 170 x 2.407 GHz; 28 Gbit/s on each of 512 lines
    assert gpu.fp16_tensor_flops_per_s == 512 * 170 * 2_407_000_000
    assert gpu.memory_bandwidth_bytes_per_s == 2 * 14_001_000_000 * 512 // 8
    # 428 MiB x 170/128 = 568.4 MiB
    assert gpu.context_bytes == 568 * MIB
    assert gpu.is_estimated("fp16_tensor_flops_per_s")
    assert not gpu.is_estimated("memory_bandwidth_bytes_per_s")
    assert gpu.max_threads_per_multiprocessor == 1536  # of compute capability 12.0


@pytest.mark.parametrize(
    ("product_name", "total_bytes", "name"),
    [
        ("NVIDIA GeForce RTX 4060 Ti", 8 * GIB, "RTX-4060-Ti-8GB"),
        ("NVIDIA GeForce RTX 4060 Ti", 16 * GIB, "RTX-4060-Ti-16GB"),
        ("NVIDIA GeForce RTX 2060", 12 * GIB, "RTX-2060-12GB"),
        ("NVIDIA GeForce RTX 2060", 5738 * MIB, "RTX-2060"),
        ("Orin", 30 * GIB, "Jetson-AGX-Orin-32GB"),
        ("NVIDIA H100 80GB HBM3", GIB, "H100"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9984 * MIB, "H100-1g.10gb"),
    ],
)
def test_a_device_is_told_from_others_of_its_name_by_memory(
    product_name: str, total_bytes: int, name: str
) -> None:
    assert catalogue.find_device(product_name, total_bytes).name == name


# ---- MIG slices ----


@pytest.mark.parametrize(
    ("typed", "name", "total_bytes", "multiprocessors"),
    [
        ("A100-80GB-1g.10gb", "A100-80GB-1g.10gb", 9728 * MIB, 14),  # as torch prints it
        ("a100 80gb pcie mig 1g.10gb", "A100-PCIE-80GB-1g.10gb", 9728 * MIB, 14),
        ("NVIDIA A100 80GB PCIe MIG 1g.10gb", "A100-PCIE-80GB-1g.10gb", 9728 * MIB, 14),
        ("H100-1g.10gb", "H100-1g.10gb", 9984 * MIB, 16),  # 9.75 GiB
        ("H100-1g.10gb+me", "H100-1g.10gb", 9984 * MIB, 16),
        ("H100 80GB 7g.80gb", "H100-7g.80gb", 81152 * MIB, 132),
        ("A30-2g.12gb", "A30-2g.12gb", int(11.69 * GIB), 28),
    ],
)
def test_a_mig_slice_has_its_own_memory(
    typed: str, name: str, total_bytes: int, multiprocessors: int
) -> None:
    found = catalogue.find(typed)
    assert (found.name, found.total_bytes, found.multiprocessors) == (
        name,
        total_bytes,
        multiprocessors,
    )
    assert found.nvml_total_bytes == total_bytes


def test_a_mig_slice_has_its_share_of_the_rest() -> None:
    whole, part = catalogue.find("H100"), catalogue.find("H100-2g.20gb")
    assert part.product_name == "NVIDIA H100 80GB HBM3 MIG 2g.20gb"
    assert part.memory_bandwidth_bytes_per_s == whole.memory_bandwidth_bytes_per_s // 4
    assert part.l2_cache_bytes == whole.l2_cache_bytes // 4
    assert part.fp16_tensor_flops_per_s == pytest.approx(989.4e12 * 32 / 132)
    assert part.context_bytes == round(534 * 32 / 132) * MIB
    assert part.nvlink_bandwidth_bytes_per_s is None
    assert part.compute_capability == whole.compute_capability
    assert part.is_estimated("context_bytes")


@every_gpu
def test_slices_are_parts_of_their_gpu(gpu: catalogue.GPUModel) -> None:
    for name in catalogue.slices(gpu):
        part = catalogue.find(name)
        assert part.name == name
        assert 0 < part.multiprocessors <= gpu.multiprocessors
        assert part.context_bytes < part.total_bytes <= gpu.nvml_total_bytes
        assert set(part.sources) == set(FIGURES)


def test_an_unknown_profile_lists_the_gpus() -> None:
    with pytest.raises(
        UnknownGPUError, match=r"^A30 has no MIG profile '1g\.5gb'\. It has: 1g\.6gb,"
    ):
        catalogue.find("A30-1g.5gb")
    with pytest.raises(UnknownGPUError, match="T4 has no MIG profiles"):
        catalogue.find("T4-1g.5gb")


# ---- figures of a caller's own ----


def test_figures_can_be_replaced() -> None:
    gpu = catalogue.find(
        "h100, memory = 60GiB, sms=114, memory_bandwidth=2e12, nvlink-bandwidth=none"
    )
    assert gpu.name == "H100,memory=60GiB,sms=114,memory_bandwidth=2e12,nvlink-bandwidth=none"
    assert gpu.total_bytes == 60 * GIB
    # The driver keeps as much as before: 85,520,809,984 - 85,017,755,648 B.
    assert gpu.nvml_total_bytes == 60 * GIB + 503_054_336
    assert (gpu.multiprocessors, gpu.memory_bandwidth_bytes_per_s) == (114, 2 * 10**12)
    assert gpu.nvlink_bandwidth_bytes_per_s is None
    assert gpu.sources["total_bytes"].startswith("given: memory=60GiB")
    assert gpu.context_bytes == catalogue.find("H100").context_bytes
    assert catalogue.find(gpu.name) == gpu


def test_a_slice_can_have_figures_too() -> None:
    assert catalogue.find("H100-1g.10gb,memory=9GiB").total_bytes == 9 * GIB


def test_a_compute_capability_brings_what_follows_from_it() -> None:
    gpu = catalogue.find("H100,compute_capability=8.9,warp_size=32")
    assert gpu.compute_capability == (8, 9)
    assert gpu.max_threads_per_multiprocessor == 1536
    assert gpu.shared_memory_per_block_optin_bytes == 101_376


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("memory=60GB", "invalid 'memory=60GB': invalid size '60GB': use a binary unit"),
        ("memory=0", "invalid 'memory=0': total_bytes must be above 0"),
        ("memory=-1GiB", "invalid 'memory=-1GiB': invalid size '-1GiB'"),
        ("memory=", "invalid 'memory=': invalid size ''"),
        ("memory=100MiB", "the context of 534 MiB leaves nothing of 100 MiB of memory"),
        ("memory=9GiB,memory=8GiB", "total_bytes of H100 is set twice: remove 'memory=8GiB'"),
        ("nvml_total=9GiB", "programs cannot have 79.179 GiB of memory if NVML counts 9 GiB"),
        ("sms=many", "invalid 'sms=many': multiprocessors must be an integer, such as 114"),
        ("sms=1.5", "invalid 'sms=1.5': multiprocessors must be an integer"),
        ("sms=inf", "invalid 'sms=inf': multiprocessors must be an integer"),
        ("sms=none", "invalid 'sms=none': every GPU has multiprocessors"),
        ("compute_capability=9", "invalid 'compute_capability=9': write .* like 9.0"),
        ("compute_capability=8.5", "unknown compute capability 8.5: the known ones are 7.0,"),
        ("colour=green", "invalid 'colour=green': unknown name 'colour'.*`vramlab gpus H100`"),
        ("60GiB", "invalid '60GiB' after H100: write figure=value, such as memory=60GiB"),
        ("product_name=", "invalid 'product_name=': the name is empty"),
    ],
)
def test_bad_figures_are_plain_errors(settings: str, said: str) -> None:
    with pytest.raises(GPUFigureError, match=said):
        catalogue.find(f"H100,{settings}")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("T4", ["T4"]),
        ("T4, L4,A100-40GB", ["T4", "L4", "A100-40GB"]),
        ("T4,H100,memory=60GiB, sms=114,L4", ["T4", "H100,memory=60GiB,sms=114", "L4"]),
        ("T4,,L4", ["T4", "", "L4"]),
        ("memory=60GiB", ["memory=60GiB"]),
    ],
)
def test_a_list_is_split_where_a_gpu_begins(text: str, parts: list[str]) -> None:
    assert catalogue.split(text) == parts
