"""Explore which batch fits a GPU: the line, and where it meets the GPU's memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import nn

from vramlab import VirtualGPU
from vramlab.measure import Table
from vramlab.units import format_mib, short_size
from vramlab_course.plots import draw_curves
from vramlab_course.widgets.controls import choice
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import AnyGPU, roomy
from vramlab_course.widgets.training_step_explorer import OPTIMIZERS

PROBES = (8, 16)
"""Batches whose peaks give the line."""

LARGEST = 2**16
"""No larger batch is tried."""

PRECISIONS = ("float32", "autocast to bfloat16", "bfloat16")


@dataclass(frozen=True)
class BatchWorkload:
    """A model, and what a batch is to it."""

    make: Callable[[], nn.Module]
    batch: Callable[[int], torch.Tensor]
    """On the GPU."""
    output: Callable[[Any], torch.Tensor]
    """The tensor that the loss is computed of."""


def _bert(**settings: int) -> nn.Module:
    from transformers import BertConfig, BertModel

    model: nn.Module = BertModel(BertConfig.from_dict(settings))
    return model


def _tokens(batch: int) -> torch.Tensor:
    return torch.zeros((batch, 512), dtype=torch.long, device="cuda")


def _vgg16() -> nn.Module:
    from vramlab_course.programs.documents import VGG16

    return VGG16()


_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}

WORKLOADS = {
    "BERT-base, 512 tokens": BatchWorkload(_bert, _tokens, lambda out: out.last_hidden_state),
    "BERT-large, 512 tokens": BatchWorkload(
        lambda: _bert(**_LARGE), _tokens, lambda out: out.last_hidden_state
    ),
    "VGG16, 224 x 224 pixels": BatchWorkload(
        _vgg16, lambda batch: torch.zeros((batch, 3, 224, 224), device="cuda"), lambda out: out
    ),
}


@dataclass(frozen=True)
class PeakLine:
    """Peak of a training step against the batch."""

    fixed_bytes: int
    """At a batch of 0."""
    per_sample_bytes: float
    probes: tuple[tuple[int, int], ...]
    """(batch, peak in bytes) that were measured."""

    def at(self, batch: int) -> float:
        """Predict the peak in bytes of a batch."""
        return self.fixed_bytes + batch * self.per_sample_bytes

    def largest(self, available_bytes: int) -> int:
        """Predict the largest batch that fits; 0 if none does."""
        return max(int((available_bytes - self.fixed_bytes) // self.per_sample_bytes), 0)


@explorer("Which batch fits")
def batch_explorer(
    model: Annotated[str, choice("Model and sample", WORKLOADS)] = "BERT-base, 512 tokens",
    precision: Annotated[str, choice("Precision", PRECISIONS)] = "float32",
    optimizer: Annotated[str, choice("Optimizer", OPTIMIZERS)] = "AdamW, fused",
    gpu: AnyGPU = "T4",
) -> View:
    """Show which batch fits: by a line through two measurements, and by trying.

    The line is measured where memory is ample; batches around the predicted one are tried.
    """
    with VirtualGPU(roomy(gpu)):
        step = _stepper(WORKLOADS[model], precision, optimizer)
        line = _line(step)
        del step
    with VirtualGPU(gpu):
        torch.cuda.init()
        available_bytes, total_bytes = torch.cuda.mem_get_info()
        predicted = min(line.largest(available_bytes), LARGEST)
        step = _stepper(WORKLOADS[model], precision, optimizer)
        found = _largest_that_fits(step, predicted) if step else 0
        del step
    shown = max(predicted, found, PROBES[-1])
    by_line = [(batch, line.at(batch)) for batch in (0, shown * 5 // 4)]
    picture = draw_curves(
        {"measured peak of a step": line.probes, "line through them": by_line},
        title=f"{model}, {precision}, {optimizer}",
        x_label="batch",
        capacity_bytes=available_bytes,
        capacity_name="memory without the CUDA context",
    )
    summary = (
        f"{short_size(line.fixed_bytes)} + {short_size(round(line.per_sample_bytes))} for each "
        f"sample. On one {gpu} the line allows a batch of {predicted}; {found} is the largest that "
        "fits."
    )
    rows = (
        ("fixed: at a batch of 0", format_mib(line.fixed_bytes)),
        ("for each sample", format_mib(round(line.per_sample_bytes))),
        ("memory of the GPU", format_mib(total_bytes)),
        ("without the CUDA context", format_mib(available_bytes)),
        ("largest batch by the line", str(predicted)),
        ("largest batch found by trying", str(found)),
    )
    return View(summary, picture, (Table("The line and the limit", ("", ""), rows),))


def _stepper(
    workload: BatchWorkload, precision: str, optimizer: str
) -> Callable[[int], None] | None:
    """Make a training step that takes the batch; None if not even the model and its states fit."""
    try:
        with torch.device("cuda"):
            model = workload.make()
        if precision == "bfloat16":
            model.to(torch.bfloat16)
        optimize = OPTIMIZERS[optimizer](model.parameters())

        def step(batch: int) -> None:
            x = workload.batch(batch)
            if precision == "bfloat16" and x.is_floating_point():
                x = x.to(torch.bfloat16)
            cast = precision.startswith("autocast")
            with torch.autocast("cuda", torch.bfloat16) if cast else nullcontext():
                output = workload.output(model(x))
                loss = output.float().sum()
            loss.backward()
            optimize.step()
            optimize.zero_grad()

        step(1)  # workspaces and states come here
    except torch.cuda.OutOfMemoryError:
        return None
    return step


def _line(step: Callable[[int], None] | None) -> PeakLine:
    assert step is not None  # memory is ample
    peaks = []
    for batch in PROBES:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        step(batch)
        peaks.append((batch, torch.cuda.max_memory_allocated()))
    (small, small_bytes), (large, large_bytes) = peaks
    slope = (large_bytes - small_bytes) / (large - small)
    return PeakLine(round(small_bytes - small * slope), slope, tuple(peaks))


def _largest_that_fits(step: Callable[[int], None], expected: int) -> int:
    """Try `expected`; then go up while it fits, or down until it does."""
    batch = min(max(expected, 1), LARGEST)
    if _fits(step, batch):
        while batch < LARGEST and _fits(step, batch + 1):
            batch += 1
        return batch
    while batch > 1:
        batch -= 1
        if _fits(step, batch):
            return batch
    return 0


def _fits(step: Callable[[int], None], batch: int) -> bool:
    try:
        step(batch)
    except torch.cuda.OutOfMemoryError:
        fitted = False
    else:
        fitted = True
    torch.cuda.empty_cache()  # now that no exception holds the step's tensors
    return fitted
