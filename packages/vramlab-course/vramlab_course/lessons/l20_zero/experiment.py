"""Lesson 20: what one rank of many keeps when states, gradients and parameters are divided.

Every function here simulates one rank of a world of any size: PyTorch's own code runs, and no other
rank answers (`vramlab.gpu.stand_ins.ranks.distributed`). In `vramlab_course.lessons.l20_zero.ranks`
other processes answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from vramlab.measure import Transfers, record_transfers
from vramlab.measure.collectives import Collectives, record_collectives
from vramlab.measure.counters import held_bytes, unsplit_remainder_bytes
from vramlab.measure.environment import start_afresh
from vramlab.measure.step_events import StepEvent, record_events
from vramlab.programs.alone import alone
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l20_zero import formulas as zero
from vramlab_course.lessons.l20_zero.formulas import Groups, Stage
from vramlab_course.lessons.l20_zero.zero import Precision, ZeroTraining
from vramlab_course.programs.ranks import refuse_real_gpu


@contextmanager
def rank_alone(rank: int, ranks: int) -> Iterator[None]:
    """Be one rank of a world whose other ranks are not there, on the attached virtual GPU.

    Raises:
        RuntimeError: the GPU is real, where NCCL waits for the others.
    """
    refuse_real_gpu("--nproc-per-node=3 -m vramlab_course.lessons.l20_zero.ranks")
    with alone(ranks, rank):
        yield


def warm_up(precision: Precision = "float32", bias: bool = False) -> None:
    """Let cuBLAS take its workspaces, so that they are not counted with what comes after."""
    dtypes = [torch.float32] if precision == "float32" else [torch.float16, torch.bfloat16]
    for dtype in dtypes:
        layer = nn.Linear(8, 8, bias=bias, device="cuda", dtype=dtype)
        x = torch.zeros(1, 8, device="cuda", dtype=dtype, requires_grad=True)
        layer(x).sum().backward()


def read_kept(
    stage: Stage, ranks: int, rank: int = 0, *, layers: int = 4, width: int = 1024
) -> int:
    """Measure what one rank of many keeps between its first two steps, gradients too."""
    start_afresh()
    with rank_alone(rank, ranks):
        warm_up()
        before_bytes = held_bytes()
        training = ZeroTraining(stage, layers, width)
        training.step()
        kept_bytes = held_bytes() - before_bytes
        del training
    start_afresh()
    return kept_bytes


@dataclass(frozen=True)
class RankReading:
    """What was measured on one rank; without cuBLAS's workspaces and unsplit remainders."""

    groups: Groups
    """Shapes of the model's parameters, layer by layer."""
    parameters: int
    """How many there are in all, on all ranks together."""
    kept_bytes: int
    """Between backward and step(): parameters, gradients and optimizer states."""
    after_forward_bytes: int
    """What forward adds: whole parameters where they stay gathered, and activations."""
    peak_bytes: int
    """The highest of forward and backward, with gradients of the step before."""
    collectives: Collectives
    """Those of one step."""
    transfers: Transfers
    """Copies between host and GPU in the same step."""


def read_rank(
    stage: Stage,
    ranks: int,
    rank: int = 0,
    *,
    layers: int = 4,
    width: int = 1024,
    bias: bool = False,
    precision: Precision = "float32",
    offload: bool = False,
) -> RankReading:
    """Measure one rank of many, alone, on the attached virtual GPU.

    Two steps come first: in the second one DDP rebuilds its buckets.
    """
    start_afresh()
    with rank_alone(rank, ranks):
        warm_up(precision, bias)
        before_bytes = held_bytes()
        training = ZeroTraining(
            stage, layers, width, bias=bias, precision=precision, offload=offload
        )
        training.step()
        training.step()
        kept_bytes = held_bytes() - before_bytes
        torch.cuda.reset_peak_memory_stats()
        remainder_bytes = unsplit_remainder_bytes()
        with record_collectives() as collectives, record_transfers() as transfers:
            loss = training.forward()
            after_forward_bytes = held_bytes() - before_bytes - kept_bytes
            loss.backward()
            peak_bytes = torch.cuda.max_memory_allocated() - before_bytes - remainder_bytes
            training.optimizer.step()
        groups = training.groups
        parameters = sum(parameter.numel() for parameter in training.model.parameters())
        del training, loss
    start_afresh()
    return RankReading(
        groups, parameters, kept_bytes, after_forward_bytes, peak_bytes, collectives, transfers
    )


def record_step(stage: Stage, ranks: int, *, layers: int, width: int, rows: int) -> list[StepEvent]:
    """Record a step of one rank of many in mixed precision, up to the end of backward."""
    start_afresh()
    with rank_alone(0, ranks):
        warm_up("mixed")
        training = ZeroTraining(stage, layers, width, precision="mixed")
        training.step()
        training.optimizer.zero_grad()
        with record_events(dict(training.model.named_children())) as events:
            training.forward(rows).backward()
        del training
    start_afresh()
    return events


@experiment(
    "zero-stages",
    lesson="20",
    question="What does each rank keep when states, gradients and parameters are divided?",
    source="001 §5.2; arXiv 1910.02054",
    conditions=Conditions(gpu="A100-40GB"),
)
def zero_stages(ranks: int = 8, rank: int = 0, layers: int = 4, width: int = 1024) -> Outcome:
    """Run a chain of Linear layers with AdamW in float32, at each stage of ZeRO."""
    trial = Trial("zero-stages", ranks=ranks, rank=rank, layers=layers, width=width)
    stages: tuple[Stage, ...] = (0, 1, 2, 3)
    for number in stages:
        with rank_alone(rank, ranks):
            warm_up()
            remainder_bytes = unsplit_remainder_bytes()
            with trial.stage(f"{zero.STAGES[number]}: kept between steps") as kept:
                training = ZeroTraining(number, layers, width)
                training.step()
            grown_bytes = sum(zero.kept_bytes(number, training.groups, ranks, rank).values()) + (
                unsplit_remainder_bytes() - remainder_bytes
            )
            kept.expect(expected("growth", grown_bytes))
            del training
        start_afresh()
    return trial.outcome()


@experiment(
    "zero-peak",
    lesson="20",
    question="What is there at the peak, when layers are gathered and given back?",
    source="001 §5.2; torch/distributed/fsdp/_fully_shard, PyTorch 2.13",
    conditions=Conditions(gpu="A100-40GB"),
)
def zero_peak(ranks: int = 8, layers: int = 6, width: int = 2048) -> Outcome:
    """Run a first step under FSDP2, with parameters that stay gathered, and that do not."""
    trial = Trial("zero-peak", ranks=ranks, layers=layers, width=width)
    stages: tuple[Literal[2, 3], ...] = (2, 3)
    for number in stages:
        with rank_alone(0, ranks):
            warm_up()
            before_bytes = torch.cuda.memory_allocated()
            training = ZeroTraining(number, layers, width)
            gpu = torch.cuda.get_device_properties()
            peak_bytes = before_bytes + zero.chain_peak_bytes(
                number,
                layers,
                width,
                ranks,
                torch_version=trial.environment.installed_version,
                threads=gpu.multi_processor_count * gpu.max_threads_per_multi_processor,
            )
            with trial.stage(
                f"{zero.STAGES[number]}: forward and backward", expected("peak", peak_bytes)
            ):
                training.forward().backward()
            del training
        start_afresh()
    return trial.outcome()


PAPER_LAYERS, PAPER_WIDTH, PAPER_RANKS = 48, 12_500, 64
"""48 layers of 12,500 x 12,500 are the ZeRO paper's 7.5 billion parameters."""


@experiment(
    "zero-table",
    lesson="20",
    question="Does a model of 7.5 billion parameters come down from 120 GB to 1.9 on 64 GPUs?",
    source="arXiv 1910.02054, figure 1",
    conditions=Conditions(gpu="B200", why="DDP takes 112 GiB"),
)
def zero_table(
    layers: int = PAPER_LAYERS, width: int = PAPER_WIDTH, ranks: int = PAPER_RANKS
) -> Outcome:
    """Measure what rank 0 holds in mixed precision when forward has ended."""
    trial = Trial("zero-table", layers=layers, width=width, ranks=ranks)
    stages: tuple[Stage, ...] = (0, 1, 2, 3)
    for number in stages:
        with rank_alone(0, ranks):
            warm_up("mixed")
            remainder_bytes = unsplit_remainder_bytes()
            with trial.stage(zero.STAGES[number]) as held:
                training = ZeroTraining(number, layers, width, precision="mixed")
                training.step()
                loss = training.forward()
            grown_bytes = (
                sum(zero.held_bytes(number, training.groups, ranks, mixed=True).values())
                + zero.chain_activations_bytes(layers, width)
                + (unsplit_remainder_bytes() - remainder_bytes)
            )
            held.expect(expected("growth", grown_bytes))
            del training, loss
        start_afresh()
    return trial.outcome()
