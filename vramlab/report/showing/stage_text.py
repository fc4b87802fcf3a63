"""The stages of a report in words, with advice. Knows nothing of torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramlab.report.evidence.stages import StageUse
from vramlab.units import MIB, format_bytes

TRAINING, EVALUATION, SAVING, LOADING = "training step", "evaluation", "saving", "loading"

_WORTH_SAYING = 0.05
"""Of what the stage has held at most: less extra memory is no news."""

_FOR_A_WHILE = {
    SAVING: (
        "Saving takes {} for a while. A full state dict is gathered on the GPU: "
        "torch.distributed.checkpoint saves each rank's shards, and "
        "StateDictOptions(full_state_dict=True, cpu_offload=True) gathers on the host."
    ),
    LOADING: (
        "Loading takes {} for a while, beside what stays. Read the file to the host "
        '(torch.load(..., map_location="cpu", mmap=True)), and build the model in the dtype that '
        "it is to have (from_pretrained(..., dtype=...))."
    ),
}
"""What usually helps in a stage that holds much more while it lasts, with {} for how much."""


def stage_lines(stages: Sequence[StageUse]) -> Iterator[str]:
    """Say what each stage has held, and what to do about it."""
    width = max([44, *(len(use.name) + 2 for use in stages)])
    yield (
        f"{'Stages, MiB allocated':<{width}}{'times':>8}{'before':>14}{'at most':>14}{'after':>14}"
    )
    for use in stages:
        sizes = (use.before_bytes, use.peak_bytes, use.after_bytes)
        row = "".join(f"{size / MIB:>14,.2f}" for size in sizes)
        yield f"  {use.name:<{width - 2}}{use.count:>8,}{row}"
    yield from stage_advice(stages)


def stage_advice(stages: Sequence[StageUse]) -> Iterator[str]:
    """Say what usually helps where a stage beside the training needs much memory for a while."""
    by_name = {use.name: use for use in stages}
    training = by_name.get(TRAINING)
    evaluation = by_name.get(EVALUATION)
    if evaluation and training and evaluation.peak_bytes > training.peak_bytes:
        more = format_bytes(evaluation.peak_bytes - training.peak_bytes)
        yield (
            f"Evaluation holds {more} more than a training step. Mostly these are logits of many "
            "batches: move each batch's to the host, or keep the metric alone (Trainer: "
            "eval_accumulation_steps, preprocess_logits_for_metrics), under torch.inference_mode()."
        )
    for name, advice in _FOR_A_WHILE.items():
        use = by_name.get(name)
        if use and use.extra_bytes > _WORTH_SAYING * use.peak_bytes:
            yield advice.format(format_bytes(use.extra_bytes))
