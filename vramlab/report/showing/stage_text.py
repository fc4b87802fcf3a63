"""The stages of a report as text, with advice. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramlab.report.evidence.stages import StageUse
from vramlab.units import MIB, format_bytes

TRAINING, EVALUATION, SAVING, LOADING = "training step", "evaluation", "saving", "loading"

_WORTH_SAYING = 0.05
"""Fraction of a stage's peak below which its extra memory is not mentioned."""

_FOR_A_WHILE = {
    SAVING: (
        "Saving temporarily allocates {}, because a full state dict is gathered on the GPU. To "
        "avoid this, save shards with torch.distributed.checkpoint, or gather on the host with "
        "StateDictOptions(full_state_dict=True, cpu_offload=True)."
    ),
    LOADING: (
        "Loading temporarily allocates {}. To avoid this, load the file to host memory with "
        'torch.load(..., map_location="cpu", mmap=True), and create the model in its final dtype '
        "with from_pretrained(..., dtype=...)."
    ),
}
"""Advice for a stage that temporarily allocates much, with {} for the size."""


def stage_lines(stages: Sequence[StageUse]) -> Iterator[str]:
    """Return a table of the stages, and advice."""
    width = max([44, *(len(use.name) + 2 for use in stages)])
    yield (f"{'Stages, allocated MiB':<{width}}{'runs':>8}{'before':>14}{'peak':>14}{'after':>14}")
    for use in stages:
        sizes = (use.before_bytes, use.peak_bytes, use.after_bytes)
        row = "".join(f"{size / MIB:>14,.2f}" for size in sizes)
        yield f"  {use.name:<{width - 2}}{use.count:>8,}{row}"
    yield from stage_advice(stages)


def stage_advice(stages: Sequence[StageUse]) -> Iterator[str]:
    """Return advice for stages that need much memory besides training."""
    by_name = {use.name: use for use in stages}
    training = by_name.get(TRAINING)
    evaluation = by_name.get(EVALUATION)
    if evaluation and training and evaluation.peak_bytes > training.peak_bytes:
        more = format_bytes(evaluation.peak_bytes - training.peak_bytes)
        yield (
            f"Evaluation allocates {more} more than a training step, usually because it collects "
            "the logits of many batches. Move the logits of each batch to the CPU, or keep only "
            "the metric (Trainer: eval_accumulation_steps, preprocess_logits_for_metrics), and use "
            "torch.inference_mode()."
        )
    for name, advice in _FOR_A_WHILE.items():
        use = by_name.get(name)
        if use and use.extra_bytes > _WORTH_SAYING * use.peak_bytes:
            yield advice.format(format_bytes(use.extra_bytes))
