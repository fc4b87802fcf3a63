"""What estimates are compared with: figures that were measured on a GPU.

A published figure is a case if it was measured and if a program is known that it belongs to. Which
figures are left out, and why, is written down as well (`NO_CASE`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from benchmarks.estimates.programs import LENGTHS, Quantity
from vramlab.measure.figures import Published
from vramlab.units import KIB, MIB
from vramlab_course.experiments.published import figure

DOCUMENT, RECORDING = "document", "recording"
"""The kinds of sources that a case can have."""


@dataclass(frozen=True)
class Case:
    """One number that was measured on a GPU.

    Attributes:
        name: of the published figure, with a part where it has several; or of the recording's.
        program: the name of the program it belongs to.
        quantity: which number of the program.
        truth_bytes: the number.
        kind: DOCUMENT or RECORDING.
        source: document and section, or the recording's file.
        published: the number with the digits that were printed; None if it is exact.
        whole_kib: it was cut to whole KiB before it was printed.
    """

    name: str
    program: str
    quantity: Quantity
    truth_bytes: int
    kind: str
    source: str
    published: Published | None = None
    whole_kib: bool = False

    def is_met_by(self, estimate_bytes: int) -> bool:
        """Whether an estimate reads the same, to the last digit that was printed."""
        if self.whole_kib:
            return estimate_bytes // KIB * KIB == self.truth_bytes
        if self.published is not None:
            return self.published.agrees_with(estimate_bytes)
        return estimate_bytes == self.truth_bytes


_PROGRAM_OF: dict[str, tuple[str, Quantity]] = {
    "tiny-allocated": ("tiny", "input"),
    "tiny-reserved": ("tiny", "reserved"),
    "three-linear-params": ("three-linear", "parameters"),
    "three-linear-input": ("three-linear", "input"),
    "three-linear-forward-first": ("three-linear", "forward"),
    "three-linear-after-backward": ("three-linear", "after backward"),
    "three-linear-peak": ("three-linear", "peak"),
    "three-linear-adamw": ("three-linear", "optimizer"),
    "three-linear-inference": ("three-linear-inference", "after forward"),
    "bert-params": ("bert-training", "parameters"),
    "bert-input": ("bert-training", "input"),
    "bert-forward": ("bert-training", "forward"),
    "bert-after-backward": ("bert-training", "after backward"),
    "bert-adamw": ("bert-training", "optimizer"),
    "bert-inference": ("bert-inference", "forward"),
    "fp16-linear-params": ("fp16-linear", "parameters"),
    "fp16-linear-input": ("fp16-linear", "input"),
    "fp16-linear-forward": ("fp16-linear", "forward"),
    "fp16-linear-after-loss": ("fp16-linear", "after loss"),
    "fp16-linear-after-backward": ("fp16-linear", "after backward"),
    "fp16-linear-adam": ("fp16-linear", "optimizer"),
}
"""Figures of one number, with their program and which of its numbers they are."""

SUMMARY = "fp16-linear-memory-summary"
_OF_SUMMARY: dict[str, tuple[str, int, Quantity]] = {
    "peak": ("Allocated memory", 1, "peak"),
    "reserved": ("GPU reserved memory", 0, "reserved"),
}
"""Of the published memory summary: the row and column of two numbers (of all pools, in KiB)."""

CURVE = "bert-sequence-fit"
"""The published curve of BERT's memory over the sequence's length, a polynomial of degree 2."""

NO_CASE = {
    **dict.fromkeys(
        ("context-3090", "context-v100"),
        "a CUDA context is decided by drivers of the past, and none of the tools claims to know it",
    ),
    "three-linear-forward-again": "the same forward pass as before, without cuBLAS's workspace",
    "fp16-linear-no-grad": "it is zero: there is no relative error",
    **dict.fromkeys(
        ("fp16-linear-torchinfo", "vgg16-params", "vgg16-sgd", "vgg16-adam", "vgg16-activations"),
        "computed by the documents, not measured on a GPU",
    ),
    **dict.fromkeys(
        ("adamw-step-extra", "gpt2-xl-states", "gpt2-xl-activations", "gpt2-xl-fused-buffer"),
        "computed by the documents, not measured on a GPU",
    ),
    **dict.fromkeys(
        ("bytes-per-param", "optimizers-3b", "fragmentation-extreme", "fragment-800", "t4-params"),
        "a rule of thumb, not a measurement",
    ),
    **dict.fromkeys(("fp8-e4m3", "fp8-e5m2", "mx-formats"), "number formats, no measurement"),
    "llama-8b-eight-bits": "of 8 GPUs with torch.compile; the program is not given",
    "bert-batch-linear": "the shape of a curve, not a number",
    **dict.fromkeys(
        ("accumulation-baseline", "accumulation-4"),
        "the model and the GPU are not named",
    ),
    "oom-anatomy": "of a program that is not given",
    "checkpoint-resnet1000": "of a framework that is no longer there",
    **dict.fromkeys(
        ("checkpoint-slowdown", "backward-flops", "method-table"), "not an amount of memory"
    ),
}
"""Published figures that are no cases, and why."""


def published_cases() -> Iterator[Case]:
    """Return the cases that documents publish."""
    for figure_id, (program, quantity) in _PROGRAM_OF.items():
        published = figure(figure_id).memory()
        yield Case(
            figure_id,
            program,
            quantity,
            published.nearest_bytes,
            DOCUMENT,
            published.source,
            published,
        )
    summary = figure(SUMMARY)
    for part, (row, column, quantity) in _OF_SUMMARY.items():
        yield Case(
            f"{SUMMARY}: {part}",
            "fp16-linear",
            quantity,
            summary.value[row]["all"][column] * KIB,
            DOCUMENT,
            summary.source,
            whole_kib=True,
        )
    curve = figure(CURVE)
    for length in LENGTHS:
        yield Case(
            f"{CURVE}: {length} tokens",
            f"bert-length-{length}",
            "after forward",
            curve_bytes(length),
            DOCUMENT,
            curve.source,
        )


def curve_bytes(length: int) -> int:
    """Return the published curve at a length, a·s² + b·s + c MiB, rounded to a whole byte."""
    curve = figure(CURVE)
    square, linear, constant = (Decimal(curve.number(part)) for part in range(3))
    return int(((square * length + linear) * length + constant) * MIB)


def figure_of(case_name: str) -> str:
    """Return the published figure that a case belongs to."""
    return case_name.partition(":")[0]
