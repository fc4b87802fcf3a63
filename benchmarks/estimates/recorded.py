"""Recordings of real GPUs as cases, and the zoo's workloads as programs for tools to predict.

Every recorded entry gives its peak and what was reserved at its end, which the virtual GPU is asked
by running the entry itself. Of a workload of the zoo there are the stages of its first step too,
and every tool is asked that is made for such a workload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.estimates.cases import RECORDING, Case
from benchmarks.estimates.programs import Program, Quantity, Transformer
from vramlab import zoo
from vramlab.recordings.entries import RULE, ZOO
from vramlab.recordings.store import OK, RecordedEntry, RecordedStage, RecordingFile
from vramlab.recordings.virtual_counterpart import measure_on_twin
from vramlab.zoo.subjects import SUBJECTS
from vramlab.zoo.workload import Workload

_GROWTH: Mapping[str, tuple[Quantity, ...]] = {
    "build": ("parameters",),
    "to the GPU": ("parameters",),
    "batch": ("input",),
    "forward 1": ("forward",),
    "step 1": ("optimizer",),
}
"""Stages of the zoo whose growth of allocated memory is a number that tools speak of."""

_AFTER: Mapping[str, Quantity] = {"backward 1": "after backward"}


def recordings(folder: Path) -> list[Path]:
    """Return the recordings in a folder, their readable files."""
    return sorted(folder.glob("*.json"))


def recorded_cases(folder: Path) -> Iterator[Case]:
    """Return what was recorded of programs; zeros have no relative error, and are no cases.

    Single calls of ops are left out: they are there for the rules, and no tool speaks of them.
    """
    for path in recordings(folder):
        for entry_id, entry in RecordingFile.open(path).entries.items():
            if entry.status != OK or entry_id.startswith(RULE):
                continue
            for quantity, recorded_bytes in numbers(entry_id, entry.stages).items():
                if recorded_bytes > 0:
                    yield Case(
                        f"{path.stem}: {entry_id}: {quantity}",
                        entry_id,
                        quantity,
                        recorded_bytes,
                        RECORDING,
                        path.name,
                    )


def numbers(entry_id: str, stages: Sequence[RecordedStage]) -> dict[Quantity, int]:
    """Return the numbers of an entry, in bytes."""
    if not stages:
        return {}
    found: dict[Quantity, int] = {}
    if entry_id.startswith(ZOO):
        before_bytes = 0
        for stage in stages:
            growth_bytes = stage.allocated_bytes - before_bytes
            for quantity in _GROWTH.get(stage.name, ()):
                found[quantity] = found.get(quantity, 0) + growth_bytes
            if stage.name in _AFTER:
                found[_AFTER[stage.name]] = stage.allocated_bytes
            before_bytes = stage.allocated_bytes
    found["peak"] = max(stage.peak_bytes for stage in stages)
    found["reserved"] = stages[-1].reserved_bytes
    return found


def on_the_virtual_gpu(cases: Sequence[Case], folder: Path) -> dict[str, int]:
    """Run every entry that a case is of on the virtual GPU that stands for the recorded one."""
    found: dict[str, int] = {}
    for source in sorted({case.source for case in cases}):
        recording = RecordingFile.open(folder / source)
        of_source = [case for case in cases if case.source == source]
        for entry_id in dict.fromkeys(case.program for case in of_source):
            entry = RecordedEntry.from_dict(measure_on_twin(recording, entry_id)["entry"])
            measured = numbers(entry_id, entry.stages)
            found |= {
                case.name: measured[case.quantity] for case in of_source if case.program == entry_id
            }
    return found


@cache
def zoo_programs() -> Mapping[str, Program]:
    """Return the zoo's workloads that train or infer, by the names of their entries."""
    return {
        ZOO + workload.id: _program(workload)
        for workload in zoo.WORKLOADS
        if workload.mode != "generate"
    }


def _program(workload: Workload) -> Program:
    trains = workload.mode == "train"
    return Program(
        ZOO + workload.id,
        partial(_model, workload),
        partial(_batch, workload),
        loss=_loss,
        optimizer=_optimizer(workload) if trains else None,
        grad=trains,
        precision=workload.precision,
        adam=trains and workload.optimizer is not None and workload.optimizer.startswith("adamw"),
        checkpointing=workload.checkpointing,
        transformer=partial(_transformer, workload),
    )


def _model(workload: Workload) -> nn.Module:
    eager = workload.attention in (None, "eager")
    model = SUBJECTS[workload.model].build(workload.attention if eager else "sdpa")
    model.train(workload.mode == "train")
    return model.bfloat16() if workload.precision == "bf16" else model


def _batch(workload: Workload) -> Mapping[str, torch.Tensor]:
    batch = SUBJECTS[workload.model].make_batch(workload.batch, workload.length)
    if workload.mode != "train":
        del batch["labels"]
    if workload.precision == "bf16":
        return {n: t.bfloat16() if t.is_floating_point() else t for n, t in batch.items()}
    return batch


def _loss(output: Any) -> torch.Tensor:
    loss: torch.Tensor = output["loss"]
    return loss


_OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=1e-3),
    "momentum": partial(torch.optim.SGD, lr=1e-3, momentum=0.9),
    "adafactor": torch.optim.Adafactor,
}


def _optimizer(workload: Workload) -> Callable[..., torch.optim.Optimizer]:
    """Return the workload's; every AdamW as its loop, the only one that runs everywhere."""
    return _OPTIMIZERS.get(workload.optimizer or "", partial(torch.optim.AdamW, foreach=False))


def _transformer(workload: Workload) -> Transformer | None:
    """Return the sizes of a language model that is one stack of layers, from its configuration."""
    if not workload.length:
        return None
    with torch.device("meta"):
        config = getattr(SUBJECTS[workload.model].build("sdpa"), "config", None)
    if config is None or config.is_encoder_decoder:
        return None
    hidden: int = config.hidden_size
    return Transformer(
        layers=config.num_hidden_layers,
        hidden=hidden,
        heads=config.num_attention_heads,
        feed_forward=getattr(config, "intermediate_size", None) or 4 * hidden,
        vocabulary=config.vocab_size,
        batch=workload.batch,
        sequence=workload.length,
    )
