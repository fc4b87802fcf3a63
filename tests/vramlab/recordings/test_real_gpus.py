"""What real GPUs measured, from assets/recordings: the virtual GPU gives the same bytes.

`vramlab compare` goes through a recording whole. Here are all its rules, and some of its workloads.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from vramlab.kernels import TABLE, Status, rules_called
from vramlab.recordings.allocator_programs import PROGRAMS
from vramlab.recordings.compare import Comparison, compare
from vramlab.recordings.entries import ALLOCATOR, RULE
from vramlab.recordings.store import OK, RecordingFile

pytestmark = pytest.mark.long

RECORDINGS = Path(__file__).parents[3] / "assets" / "recordings"
RECORDING = RECORDINGS / "h200-torch2.11.0.json"
RECORDING_OF_H100 = RECORDINGS / "h100" / "h100-torch2.11.0.json"

CUDNN = {"aten.convolution.default", "aten.convolution_backward.default"}
"""Rules of which cuDNN decides a part."""

EQUAL = (
    "experiment/pages-and-blocks",
    "experiment/three-linear",
    "experiment/three-linear-peak",
    "experiment/fp16-linear",
    "experiment/optimizer-step-peak",
    "experiment/bert-training",
    "experiment/kv-cache",
    "experiment/precision-modes",
    "zoo/mlp-1024x4-b1-fp32-adamw",
    "zoo/mlp-4096x8-b4096-autocast-fp16-adamw-loop-clipping",
    "zoo/vit-base-b32-fp32-adamw-math",
    "zoo/bert-base-b32-s128-autocast-bf16-adamw-flash",
    "zoo/t5-small-b16-s512-autocast-bf16-adamw-eager",
    "zoo/gpt2-b8-s1024-autocast-fp16-adamw-efficient-clipping",
    "zoo/gpt2-b8-s512-bf16-generate-sdpa",
    "zoo/vgg16-b32-fp32-infer",
    "zoo/convnext-tiny-b64-autocast-bf16-adamw-fused",
    "zoo/vit-base-b64-autocast-bf16-adamw-flash",
    "zoo/llama-1b-b2-s2048-autocast-bf16-adamw-flash-clipping",
    "zoo/qwen-0.6b-b2-s1024-bf16-adamw-foreach-flash",
)
"""Entries in which every number of every stage is equal."""

EQUAL_ON_H100 = (
    *(ALLOCATOR + name for name in PROGRAMS),
    "experiment/adapters-kept",
    "experiment/four-bits",
    "experiment/long-loss",
    "experiment/moe-layer",
    "experiment/reserved-or-paged",
    "experiment/latent-cache",
    "experiment/eight-bit-chain",
    "experiment/eight-bit-readers",
    "experiment/leaks",
)
"""Allocator settings, and lessons that were written after the H200 had been recorded."""


@cache
def recording() -> RecordingFile:
    return RecordingFile.open(RECORDING)


def compared(entry: str) -> Comparison:
    (comparison,) = compare(recording(), [entry])
    return comparison


@pytest.mark.parametrize("rule", [rule for rule in rules_called() if rule not in CUDNN])
def test_a_rule_is_as_recorded(rule: str) -> None:
    comparison = compared(RULE + rule)
    assert comparison.problem is None
    assert comparison.differing == ()
    assert len(comparison.numbers) >= 4  # of each call: allocated, peak, reserved, peak reserved


def test_rules_say_that_they_are_recorded_where_they_are() -> None:
    recorded = {
        name.removeprefix(RULE)
        for name, entry in recording().entries.items()
        if name.startswith(RULE) and entry.status == OK
    }
    claiming = {rule.ops[0] for rule in TABLE.rules if rule.status is Status.RECORDED}
    assert claiming == recorded - CUDNN


@pytest.mark.parametrize("entry", EQUAL)
def test_a_program_is_as_recorded(entry: str) -> None:
    comparison = compared(entry)
    assert comparison.problem is None
    assert comparison.differing == ()


def test_the_recording_is_of_a_real_gpu_and_whole() -> None:
    machine = recording().machine
    assert (machine["gpu"], machine["virtual"]) == ("NVIDIA H200", False)
    status = {entry.status for entry in recording().entries.values()}
    assert status == {"ok", "skipped"}  # skipped: those that need several GPUs


@pytest.mark.parametrize("entry", EQUAL_ON_H100)
def test_an_h100_measured_what_was_predicted(entry: str) -> None:
    (comparison,) = compare(RecordingFile.open(RECORDING_OF_H100), [entry])
    assert comparison.problem is None
    assert comparison.differing == ()
    assert comparison.numbers
