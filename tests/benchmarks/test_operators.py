"""Operators of PyTorch's own database, beside what its CUDA code was seen to allocate."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import torch

from benchmarks import operator_calls
from benchmarks.operators import GPU, SAMPLE_FILE, compare, results
from vramlab import VirtualGPU

SAMPLE = json.loads(SAMPLE_FILE.read_text(encoding="utf-8"))


def row(entry: str, *sizes: int, peak_bytes: int = 512, **more: Any) -> dict[str, Any]:
    call = {
        "forward": list(sizes),
        "forward_peak_bytes": peak_bytes,
        "backward": None,
        "backward_peak_bytes": None,
    }
    return {"entry": entry, "calls": {"float32 small 0": call | more}, "ended": 0}


def test_a_call_is_equal_with_the_same_sizes_and_peaks() -> None:
    same = compare(row("op a", 4, 8), row("op a", 4, 8))
    assert (same.equal, same.differing) == (1, {})
    for other in (row("op a", 8, 4), row("op a", 4, 8, peak_bytes=1024)):
        different = compare(row("op a", 4, 8), other)
        assert (different.equal, len(different.differing)) == (0, 1)
    assert compare(row("op a", 4), None).differing == {"float32 small 0": "not reached"}


def test_what_the_native_engine_refuses_is_not_compared() -> None:
    refused = {"entry": "op a", "calls": {"float32 small 0": {"raised": "cuFFT"}}, "ended": 0}
    found = compare(refused, row("op a", 4))
    assert (found.refused, found.ran) == (1, 0)


def test_sizes_that_follow_from_values_are_counted_apart() -> None:
    found = compare(row("op a", 4), row("op a", 8, by_values=True))
    assert (found.by_values, found.ran) == (1, 0)
    assert compare(row("op a", 4, by_values=True), row("op a", 8)).by_values == 1
    assert compare(row("op a", 4), row("op a", 4, by_values=True)).equal == 1


def test_totals_are_by_kind() -> None:
    pairs = [(row("op a", 4), row("op a", 4)), (row("module b", 4), row("module b", 8))]
    data = results([compare(*pair) for pair in pairs])
    assert data["kinds"]["op"]["equal entries"] == 1
    assert data["kinds"]["module"].get("equal entries", 0) == 0
    assert list(data["differing"]) == ["module b"]


@pytest.mark.long
@pytest.mark.skipif(
    not torch.__version__.startswith(SAMPLE["torch"]),
    reason=f"the sample is of PyTorch {SAMPLE['torch']}",
)
def test_a_sample_of_operators_allocates_what_pytorch_does() -> None:
    wanted = SAMPLE["traces"]
    entries = [entry for entry in operator_calls.entries() if entry[0] in wanted]
    assert len(entries) == len(wanted)
    torch.backends.cudnn.benchmark = False  # the databases have not frozen it
    found: dict[str, dict[str, Any]] = {}

    def attach() -> None:
        VirtualGPU(GPU, on_value="nan").attach()

    operator_calls.run_all(
        entries, attach, lambda row: found.update({row["entry"]: row}), partial(_is_in, wanted)
    )
    expected = [{"entry": name, "calls": calls, "ended": 0} for name, calls in wanted.items()]
    differing = {
        one.entry: one.differing
        for one in (compare(each, found.get(each["entry"])) for each in expected)
        if one.differing
    }
    assert differing == {}


def _is_in(wanted: dict[str, dict[str, Any]], entry: str, label: str) -> bool:
    return label in wanted[entry]
