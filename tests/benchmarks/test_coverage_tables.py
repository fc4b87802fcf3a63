"""What a virtual GPU says to each name of torch.cuda, and that it is said in its own words."""

from __future__ import annotations

import re

import pytest
import torch

from benchmarks import pages
from benchmarks.parts import coverage_tables
from vramlab.gpu.torch_internals import CUDA_FUNCTIONS

IN_WORDS = ("UnsupportedOnVirtualGPU", "NoStandIn", "NVMLError_NotSupported")
"""Errors that say what is not modelled; the last is NVML's own, of GPUs that cannot tell."""


@pytest.mark.parametrize("name", coverage_tables.public_names())
def test_what_is_refused_is_refused_in_words(name: str) -> None:
    said = coverage_tables.tried()[name]
    assert said is None or said.split(":")[0] in IN_WORDS


def test_what_is_asked_most_is_answered() -> None:
    for name in ("memory_allocated", "max_memory_allocated", "memory_summary", "mem_get_info"):
        assert coverage_tables.tried()[name] is None
    assert coverage_tables.tried()["CUDAGraph"] is None
    assert str(coverage_tables.tried()["GreenContext"]).startswith("UnsupportedOnVirtualGPU: ")
    assert str(coverage_tables.tried()["current_blas_handle"]).startswith(
        "NoStandIn: torch._C._cuda_getCurrentBlas"
    )


def test_every_function_of_the_c_layer_is_supported_or_hidden() -> None:
    table, hidden = coverage_tables.c_layer().split("\n\n")
    rows = [line.split("|")[1].strip(" `") for line in table.splitlines()[2:]]
    assert rows == list(CUDA_FUNCTIONS)
    # PyTorch's own function, which only returns the version of CUDA it was built with.
    harmless = {"_cuda_getCompiledVersion"}
    assert set(re.findall(r"`(\w+)`", hidden)) == (
        coverage_tables.c_functions() - CUDA_FUNCTIONS.keys() - harmless
    )
    assert len(rows) >= 60


def test_a_page_is_not_written_with_another_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "<!-- generated: c-layer -->\nold\n<!-- end: c-layer -->\n"
    monkeypatch.setattr(torch, "__version__", "2.12.1+cpu")
    assert pages.filled(page, {"c-layer": lambda: "new"}) == page
    locked = re.findall(r"^torch==(.+)$", coverage_tables.LOCK.read_text(), re.M)[0]
    monkeypatch.setattr(torch, "__version__", f"{locked}+cpu")
    assert "new" in pages.filled(page, {"c-layer": lambda: "new"})
