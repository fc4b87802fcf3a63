"""Lesson 20: what one rank of many keeps when states, gradients and parameters are divided.

Every function here is one rank alone, of a world of any size: PyTorch's own code runs, and nobody
answers (`vramlab.virtual.distributed`). `vramlab.ranks.zero` has processes that do answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from vramlab.experiments.bert import unsplit_bytes
from vramlab.experiments.master_weights import MasterAdamW
from vramlab.experiments.outcome import Outcome
from vramlab.experiments.registry import Conditions, experiment
from vramlab.experiments.surroundings import start_afresh
from vramlab.experiments.trial import Trial, expected
from vramlab.formulas import zero
from vramlab.formulas.zero import Groups, Stage
from vramlab.measure import Transfers, record_transfers
from vramlab.measure.collectives import Collectives, record_collectives
from vramlab.ranks import alone, refuse_real_gpu

Precision = Literal["float32", "mixed"]
"""`mixed`: 16-bit parameters to compute with and float32 ones to update. bfloat16 with FSDP2, which
keeps float32 shards; float16 with DDP, whose optimizer keeps the float32 copy."""


@contextmanager
def rank_alone(rank: int, ranks: int) -> Iterator[None]:
    """Be one rank of a world whose other ranks are not there, on the attached virtual GPU.

    Raises:
        RuntimeError: the GPU is real, where NCCL waits for the others.
    """
    refuse_real_gpu("--nproc-per-node=3 -m vramlab.ranks.zero")
    with alone(ranks, rank):
        yield


def chain(layers: int, width: int, bias: bool = False, **where: Any) -> nn.Sequential:
    """Linear layers of (width, width), one after the other."""
    return nn.Sequential(*(nn.Linear(width, width, bias=bias, **where) for _ in range(layers)))


def groups_of(model: nn.Sequential) -> Groups:
    """Shapes of the parameters of each layer."""
    return [[tuple(parameter.shape) for parameter in layer.parameters()] for layer in model]


class Training:
    """A chain of Linear layers that is trained at a stage of ZeRO, on the rank that this one is.

    Args:
        stage: see `vramlab.formulas.zero`.
        layers: how many.
        width: of each.
        bias: whether they have biases.
        precision: see `Precision`.
        offload: with stage 2 and 3: the host keeps the shards.
    """

    def __init__(
        self,
        stage: Stage,
        layers: int,
        width: int,
        *,
        bias: bool = False,
        precision: Precision = "float32",
        offload: bool = False,
    ) -> None:
        self.width = width
        self.model: nn.Sequential
        self.dtype = torch.float32
        if stage < 2:
            self.dtype = torch.float16 if precision == "mixed" else torch.float32
            self.model = chain(layers, width, bias, device="cuda", dtype=self.dtype)
            self.forward_of: nn.Module = DistributedDataParallel(
                self.model, gradient_as_bucket_view=True
            )
            kind = MasterAdamW if precision == "mixed" else torch.optim.AdamW
            self.optimizer = (
                ZeroRedundancyOptimizer(self.model.parameters(), kind, lr=1e-3)
                if stage == 1
                else kind(self.model.parameters(), lr=1e-3)
            )
            self.groups = groups_of(self.model)
            return
        # On no device at first: no rank ever has to hold all of it.
        self.model = chain(layers, width, bias, device="meta")
        self.groups = groups_of(self.model)
        options: dict[str, Any] = {"reshard_after_forward": stage == 3}
        if precision == "mixed":
            options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
        if offload:
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
        for layer in self.model:
            fully_shard(layer, **options)
        fully_shard(self.model, **options)
        self.model.to_empty(device="cpu" if offload else "cuda")
        self.forward_of = self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def forward(self) -> torch.Tensor:
        """The loss of a batch of one row."""
        x = torch.zeros(1, self.width, device="cuda", dtype=self.dtype)
        loss: torch.Tensor = self.forward_of(x).sum()
        return loss

    def step(self) -> None:
        """A whole step; gradients stay."""
        self.forward().backward()
        self.optimizer.step()


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
    """Measure what one rank of many keeps between its first two steps, gradients included."""
    start_afresh()
    with rank_alone(rank, ranks):
        warm_up()
        before_bytes = held_bytes()
        training = Training(stage, layers, width)
        training.step()
        kept_bytes = held_bytes() - before_bytes
        del training
    start_afresh()
    return kept_bytes


@dataclass(frozen=True)
class RankReading:
    """What was measured on one rank; without cuBLAS's workspaces and rests of blocks."""

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

    Two steps come first: in the second one DDP arranges its buckets anew.
    """
    start_afresh()
    with rank_alone(rank, ranks):
        warm_up(precision, bias)
        before_bytes = held_bytes()
        training = Training(stage, layers, width, bias=bias, precision=precision, offload=offload)
        training.step()
        training.step()
        kept_bytes = held_bytes() - before_bytes
        torch.cuda.reset_peak_memory_stats()
        rests_bytes = unsplit_bytes()
        with record_collectives() as collectives, record_transfers() as transfers:
            loss = training.forward()
            after_forward_bytes = held_bytes() - before_bytes - kept_bytes
            loss.backward()
            peak_bytes = torch.cuda.max_memory_allocated() - before_bytes - rests_bytes
            training.optimizer.step()
        groups = training.groups
        parameters = sum(parameter.numel() for parameter in training.model.parameters())
        del training, loss
    start_afresh()
    return RankReading(
        groups, parameters, kept_bytes, after_forward_bytes, peak_bytes, collectives, transfers
    )


def held_bytes() -> int:
    """Allocated bytes on the current GPU, without the rests of blocks that were not split off."""
    return torch.cuda.memory_allocated() - unsplit_bytes()


@experiment(
    "zero-stages",
    lesson="20",
    question="What does each rank keep when states, gradients and parameters are divided?",
    source="001 §5.2; arXiv 1910.02054",
    conditions=Conditions(gpu="A100-40GB"),
)
def zero_stages(ranks: int = 8, rank: int = 0, layers: int = 4, width: int = 1024) -> Outcome:
    """A chain of Linear layers with AdamW in float32, at each stage of ZeRO."""
    trial = Trial("zero-stages", ranks=ranks, rank=rank, layers=layers, width=width)
    stages: tuple[Stage, ...] = (0, 1, 2, 3)
    for number in stages:
        with rank_alone(rank, ranks):
            warm_up()
            rests_bytes = unsplit_bytes()
            with trial.stage(f"{zero.STAGES[number]}: kept between steps") as kept:
                training = Training(number, layers, width)
                training.step()
            grown_bytes = sum(zero.kept_bytes(number, training.groups, ranks, rank).values()) + (
                unsplit_bytes() - rests_bytes
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
    """A first step of a chain under FSDP2, with parameters that stay gathered, and that do not."""
    trial = Trial("zero-peak", ranks=ranks, layers=layers, width=width)
    stages: tuple[Literal[2, 3], ...] = (2, 3)
    for number in stages:
        with rank_alone(0, ranks):
            warm_up()
            before_bytes = torch.cuda.memory_allocated()
            training = Training(number, layers, width)
            peak_bytes = before_bytes + zero.chain_peak_bytes(number, layers, width, ranks)
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
    """What rank 0 holds in mixed precision when forward has ended, with gradients and states."""
    trial = Trial("zero-table", layers=layers, width=width, ranks=ranks)
    stages: tuple[Stage, ...] = (0, 1, 2, 3)
    for number in stages:
        with rank_alone(0, ranks):
            warm_up("mixed")
            rests_bytes = unsplit_bytes()
            with trial.stage(zero.STAGES[number]) as held:
                training = Training(number, layers, width, precision="mixed")
                training.step()
                loss = training.forward()
            grown_bytes = (
                sum(zero.held_bytes(number, training.groups, ranks, mixed=True).values())
                + zero.chain_activations_bytes(layers, width)
                + (unsplit_bytes() - rests_bytes)
            )
            held.expect(expected("growth", grown_bytes))
            del training, loss
        start_afresh()
    return trial.outcome()
