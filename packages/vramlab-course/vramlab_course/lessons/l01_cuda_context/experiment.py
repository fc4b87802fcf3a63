"""Lesson 01: what a process costs before it computes, and what one number on the GPU takes."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from vramlab import catalogue
from vramlab.cuda_rules.sizes import block_bytes, segment_size
from vramlab.measure import Table
from vramlab.units import MIB
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import experiment
from vramlab_course.experiments.trial import Trial, expected


@experiment(
    "cuda-context",
    lesson="01",
    question="What does a process take of a GPU before it computes anything?",
    source="001 §1.1 §1.2, 003",
    figures=("tiny-allocated", "tiny-reserved", "context-3090", "context-v100"),
)
def cuda_context() -> Outcome:
    """Put one number on the GPU, and what the driver counts for the process besides.

    The context is measured as the documents do: what the device has in use, less PyTorch's reserved
    memory. Whatever other processes use is in it, so measure on an idle GPU. Document 003 prints
    512 again after `del` and `empty_cache()`; then something else still held the tensor.
    """
    trial = Trial("cuda-context")
    with trial.stage(
        "a tensor of one number",
        expected("allocated", block_bytes(4), "tiny-allocated"),
        expected("reserved", segment_size(block_bytes(4)), "tiny-reserved"),
    ) as first:
        number = torch.tensor([1.0]).to("cuda")
    measured = first.measurement
    context_bytes = measured.device_used_after_bytes - measured.reserved_after_bytes
    with trial.stage(
        "del", expected("allocated", 0), expected("reserved", segment_size(block_bytes(4)))
    ):
        del number
    with trial.stage(
        "empty_cache", expected("reserved", 0), expected("device used", context_bytes)
    ):
        torch.cuda.empty_cache()
    note = (
        "a context's size depends on GPU, driver and CUDA version. The document's driver loaded "
        "every kernel at start; since CUDA 11.7 a kernel is loaded when it is first used. Here, on "
        f"{torch.cuda.get_device_name()}: {context_bytes / MIB:,.0f} MiB"
    )
    for figure in ("context-3090", "context-v100"):
        trial.find(figure, None, note=note, quoted=True)
    return trial.outcome()


def contexts_table(names: Iterable[str]) -> Table:
    """Return how large the CUDA contexts of some GPUs are, today and under drivers of the past.

    Args:
        names: of GPUs in the catalogue.
    """
    models = [catalogue.find(name) for name in names]
    rows = tuple(
        (
            model.name,
            f"{'~' if model.is_estimated('context_bytes') else ''}{model.context_bytes / MIB:,.0f}",
            f"{model.context_bytes / model.total_bytes:.1%}",
            "\n".join(f"{past.context_bytes / MIB:,.0f}" for past in model.historical_contexts),
        )
        for model in models
    )
    today = [f"{model.name}, today: {model.sources['context_bytes']}" for model in models]
    past = [
        f"{model.name}, in the past: {past.conditions} ({past.source})"
        for model in models
        for past in model.historical_contexts
    ]
    header = ("GPU", "today", "share of the GPU", "in the past")
    return Table("CUDA contexts in MiB; ~ is estimated", header, rows, (*today, *past))
