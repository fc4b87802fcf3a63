"""torch.cuda's and torch.accelerator's memory functions: torch's own code over the GPU's books."""

from __future__ import annotations

import gc
import inspect
import os
import pickle
import re
import warnings
from pathlib import Path

import pytest
import torch
from torch.cuda import _memory_viz, memory

import vramlab
from vramlab import catalogue
from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU
from vramlab.units import GIB, MIB


def test_counters_agree_with_each_other(gpu: VirtualGPU) -> None:
    kept = [torch.empty(n, device="cuda") for n in (1, 1000, MIB, 5 * MIB)]
    kept.pop(2)
    stats = torch.cuda.memory_stats()
    nested = torch.cuda.memory_stats_as_nested_dict()
    assert stats["allocated_bytes.all.current"] == torch.cuda.memory_allocated()
    assert stats["allocated_bytes.all.peak"] == torch.cuda.max_memory_allocated()
    assert stats["reserved_bytes.all.current"] == torch.cuda.memory_reserved()
    assert stats["reserved_bytes.all.peak"] == torch.cuda.max_memory_reserved()
    assert nested["allocated_bytes"]["all"]["current"] == torch.cuda.memory_allocated()
    for name in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"):
        for kind in ("current", "peak", "allocated", "freed"):
            pools = [stats[f"{name}.{pool}.{kind}"] for pool in ("small_pool", "large_pool")]
            if kind != "peak":
                assert stats[f"{name}.all.{kind}"] == sum(pools)
        assert (
            stats[f"{name}.all.allocated"] - stats[f"{name}.all.freed"]
            == stats[f"{name}.all.current"]
        )
    segments = torch.cuda.memory_snapshot()
    assert sum(s["total_size"] for s in segments) == torch.cuda.memory_reserved()
    assert sum(s["allocated_size"] for s in segments) == torch.cuda.memory_allocated()
    blocks = [b for s in segments for b in s["blocks"]]
    active = [b for b in blocks if b["state"] == "active_allocated"]
    assert sum(b["size"] for b in active) == torch.cuda.memory_allocated()
    assert sorted(b["requested_size"] for b in active) == [4, 4000, 20 * MIB]
    assert stats["segment.all.current"] == len(segments)
    assert stats["allocation.all.current"] == len(active)
    kept.clear()


def test_peaks_and_resets(gpu: VirtualGPU) -> None:
    x = torch.empty(MIB, device="cuda")
    del x
    assert (torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()) == (0, 4 * MIB)
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 0
    assert torch.cuda.max_memory_reserved() == 20 * MIB  # still in the cache
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_reserved() == torch.cuda.memory_reserved() == 0
    assert torch.cuda.memory_stats()["num_device_alloc"] == 1
    torch.cuda.reset_accumulated_memory_stats()
    stats = torch.cuda.memory_stats()
    assert (stats["num_device_alloc"], stats["allocation.all.allocated"]) == (0, 0)


def test_each_gpu_has_its_books(gpus: VirtualGPU) -> None:
    x = torch.empty(MIB, device="cuda:1")
    for ask in (
        torch.cuda.memory_allocated,
        torch.cuda.max_memory_allocated,
        torch.cuda.memory_reserved,
        torch.cuda.max_memory_reserved,
    ):
        assert ask() == ask(0) == ask("cuda:0") == 0
        assert ask(1) == ask("cuda:1") == ask(torch.device("cuda", 1)) > 0
    with torch.cuda.device(1):
        assert torch.cuda.memory_allocated() == 4 * MIB
    torch.cuda.reset_peak_memory_stats(1)
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved(1) == 20 * MIB  # in use: stays
    del x
    with torch.cuda.device(0):
        torch.cuda.empty_cache()  # of all GPUs
    assert torch.cuda.memory_reserved(1) == 0


def test_every_public_function_answers(gpu: VirtualGPU) -> None:
    # A list kept here would go stale; torch's own says what there is.
    asked = {
        name: getattr(memory, name)
        for name in memory.__all__
        if inspect.isfunction(getattr(memory, name))
        and not [
            p
            for p in inspect.signature(getattr(memory, name)).parameters.values()
            if p.default is p.empty and p.kind is not p.VAR_KEYWORD
        ]
    }
    assert len(asked) > 15
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # memory_cached and its like
        for name, function in asked.items():
            if (name.startswith("reset") and "host" in name) or name.startswith("host"):
                # pinned memory has no allocator here, and says so
                with pytest.raises(UnsupportedOnVirtualGPU, match="is not modelled"):
                    function()
            else:
                function()


def test_the_summary_is_torchs(gpu: VirtualGPU) -> None:
    x = torch.empty(MIB, device="cuda")
    y = torch.empty(10, device="cuda")
    text = torch.cuda.memory_summary()
    assert "PyTorch CUDA memory summary, device ID 0" in text
    row = next(line for line in text.splitlines() if line.startswith("| Allocated memory"))
    # 4 MiB and 512 B: 4096 KiB (and a half, which is cut)
    assert re.findall(r"\d+ \w+", row) == ["4096 KiB", "4096 KiB", "4096 KiB", "0 B"]
    assert "from large pool" in text
    short = torch.cuda.memory_summary(abbreviated=True)
    assert "from large pool" not in short
    del x, y


def test_the_drivers_view(gpu: VirtualGPU) -> None:
    model = catalogue.find("A100-40GB")
    free, total = torch.cuda.mem_get_info()
    assert total == model.total_bytes
    assert free == total - model.context_bytes  # asking has made the context
    x = torch.empty(MIB, device="cuda")
    assert torch.cuda.mem_get_info()[0] == free - 20 * MIB
    del x
    assert torch.cuda.mem_get_info()[0] == free - 20 * MIB
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info() == (free, total)


def test_properties(gpu: VirtualGPU) -> None:
    model = catalogue.find("A100-40GB")
    properties = torch.cuda.get_device_properties(0)
    assert properties.total_memory == model.total_bytes
    assert properties.multi_processor_count == 108
    assert (properties.major, properties.minor) == torch.cuda.get_device_capability() == (8, 0)
    assert properties.name == torch.cuda.get_device_name() == model.product_name
    assert model.product_name in repr(properties)
    assert torch.cuda.is_bf16_supported()
    assert torch.cuda.get_arch_list()
    assert torch.version.cuda is not None
    assert torch.cuda.is_initialized()


def test_accelerator(gpus: VirtualGPU) -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.accelerator.device_count() == 2
    torch.accelerator.set_device_index(1)
    assert torch.accelerator.current_device_index() == torch.cuda.current_device() == 1
    x = torch.empty(MIB, device="cuda")
    assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated(1) == 4 * MIB
    assert torch.accelerator.memory_reserved() == 20 * MIB
    assert torch.accelerator.max_memory_allocated() == 4 * MIB
    del x
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() == torch.accelerator.max_memory_allocated() == 0
    torch.accelerator.synchronize()
    with torch.accelerator.device_index(0):
        assert torch.cuda.current_device() == 0
    assert torch.accelerator.memory_stats()["allocation.all.current"] == 0


def test_raw_allocations(gpu: VirtualGPU) -> None:
    address = memory.caching_allocator_alloc(1000)
    assert torch.cuda.memory_allocated() == 1024
    assert address % 512 == 0
    memory.caching_allocator_delete(address)
    assert torch.cuda.memory_allocated() == 0
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        memory.caching_allocator_delete(address)
    assert memory.get_allocator_backend() == "native"


def test_history_of_a_program(gpu: VirtualGPU, tmp_path: Path) -> None:
    memory._record_memory_history()
    x = torch.zeros(MIB, device="cuda")
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    del x
    torch.cuda.empty_cache()
    snapshot = memory._snapshot()
    memory._record_memory_history(enabled=None)
    torch.zeros(MIB, device="cuda")  # not recorded
    (trace,) = snapshot["device_traces"]
    actions = [(entry["action"], entry["size"]) for entry in trace]
    assert actions == [
        ("segment_alloc", 20 * MIB),
        ("alloc", 4 * MIB),
        ("free_requested", 4 * MIB),
        ("free_completed", 4 * MIB),
        ("segment_free", 20 * MIB),
    ]
    op, *python_frames = trace[1]["frames"]
    assert op["name"] == "at::_ops::zeros::call"  # as on a GPU, where C++ frames are recorded, too
    frame = python_frames[0]
    assert os.path.samefile(frame["filename"], __file__)
    assert (frame["line"], frame["name"]) == (line, "test_history_of_a_program")
    own = f"{Path(vramlab.__file__).parent}{os.sep}"
    assert not any(f["filename"].startswith(own) for f in trace[1]["frames"])
    assert memory._snapshot()["device_traces"] == [[]]  # stopping forgets


def test_snapshots_are_read_by_torchs_own_tools(gpu: VirtualGPU, tmp_path: Path) -> None:
    memory._record_memory_history(max_entries=100)
    x = torch.zeros(MIB, device="cuda")
    y = torch.zeros(10, device="cuda")
    del x
    memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    memory._record_memory_history(enabled=None)
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    assert len(snapshot["segments"]) == 2
    assert "html" in _memory_viz.trace_plot(snapshot)
    assert "html" in _memory_viz.segment_plot(snapshot)
    assert "segments: 2" in _memory_viz.segsum(snapshot)
    assert "alloc" in _memory_viz.trace(snapshot)
    del y


class TestOutOfMemory:
    def test_the_error_is_torchs(self, gpus: VirtualGPU) -> None:
        with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
            torch.empty(20 * GIB, dtype=torch.uint8, device="cuda:1")
        assert torch.cuda.OutOfMemoryError is torch.OutOfMemoryError
        assert isinstance(caught.value, RuntimeError)
        text = str(caught.value)
        assert text.startswith(
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of "
            "14.74 GiB of which "
        )
        assert "allocated by PyTorch" in text
        assert torch.cuda.memory_stats(1)["num_ooms"] == 1
        assert torch.cuda.memory_stats(0)["num_ooms"] == 0

    def test_in_the_backward_pass(self, gpus: VirtualGPU) -> None:
        x = torch.zeros(5 * GIB // 4, device="cuda", requires_grad=True)  # 5 GiB
        y = x * 2  # 10 GiB
        with pytest.raises(torch.cuda.OutOfMemoryError):
            y.backward(torch.ones(1, device="cuda").expand_as(y))
        assert x.grad is None
        del x, y
        gc.collect()
        assert torch.cuda.memory_allocated() == 0

    def test_the_cache_is_given_back_first(self, gpus: VirtualGPU) -> None:
        for gib in (6, 9):  # 6 GiB in the cache are of no use for 9: 15 would not fit
            torch.empty(gib * GIB, dtype=torch.uint8, device="cuda")
        torch.empty(12 * GIB, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_stats()["num_alloc_retries"] == 2
        assert torch.cuda.memory_stats()["num_ooms"] == 0

    def test_a_fraction_of_memory(self, gpu: VirtualGPU) -> None:
        torch.cuda.set_per_process_memory_fraction(0.25)
        assert torch.cuda.get_per_process_memory_fraction() == 0.25
        with pytest.raises(torch.cuda.OutOfMemoryError, match=r"9\.85 GiB allowed"):
            torch.empty(12 * GIB, dtype=torch.uint8, device="cuda")
        torch.empty(9 * GIB, dtype=torch.uint8, device="cuda")
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.empty(12 * GIB, dtype=torch.uint8, device="cuda")
        with pytest.raises(ValueError, match="Invalid fraction value"):
            torch.cuda.set_per_process_memory_fraction(1.5)

    def test_settings_changed_while_the_program_runs(self, gpu: VirtualGPU) -> None:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
        torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        # An expandable segment maps pages of 20 MiB: two for 30 MiB; a plain segment has 30.
        assert torch.cuda.memory_reserved() == 2 * 20 * MIB
        assert torch._C._accelerator_getAllocatorSettings() == "expandable_segments:True"
        with pytest.raises(ValueError, match="expandable_segment"):
            torch._C._accelerator_setAllocatorSettings("expandable_segment:True")


def test_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    with VirtualGPU("T4"):
        x = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        (segment,) = torch.cuda.memory_snapshot()
        assert segment["is_expandable"]
        assert segment["total_size"] == 40 * MIB  # pages of 20 MiB
        del x
    with VirtualGPU("T4", alloc_conf=""):
        x = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        (segment,) = torch.cuda.memory_snapshot()
        assert not segment["is_expandable"]
        assert segment["total_size"] == 30 * MIB
        del x


def test_the_older_environment_variable_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in PyTorch. Processes that are started get the same settings, as text."""
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:21")
    monkeypatch.setenv("PYTORCH_HIP_ALLOC_CONF", "max_split_size_mb:32")
    assert split_size(VirtualGPU("T4")) == 32 * MIB
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:43")
    gpu = VirtualGPU("T4")
    assert split_size(gpu) == 43 * MIB
    assert split_size(VirtualGPU(**gpu._options)) == 43 * MIB
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "")
    assert split_size(VirtualGPU("T4")) is None
    assert split_size(VirtualGPU("T4", alloc_conf="max_split_size_mb:54")) == 54 * MIB


def split_size(gpu: VirtualGPU) -> int | None:
    return gpu.machine.devices[0].allocator.settings.max_split_size_bytes


def test_what_has_no_stand_in_is_named(gpu: VirtualGPU) -> None:
    assert not hasattr(torch._C, "_cuda_something_new")
    with pytest.raises(UnsupportedOnVirtualGPU, match=r"torch\._C\._cuda_something_new is not"):
        torch._C._cuda_something_new()
    with pytest.raises(AttributeError, match="has no attribute '_something_else'"):
        torch._C._something_else()
