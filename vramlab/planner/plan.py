"""A plan: which model is trained how, on which GPUs, and who does what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.errors import VramlabError
from vramlab.planner.custom import CustomModel
from vramlab.planner.parts import layers_of_stages, one_rank_of
from vramlab.programs.divisions import ZeROStage as Stage
from vramlab.programs.optimizer_states import Implementation
from vramlab.programs.pipeline_schedules import Name as Schedule
from vramlab.programs.pipeline_schedules import plan as schedule_plan
from vramlab.programs.transformer_memory import (
    ATTENTIONS,
    CHECKPOINTINGS,
    PRECISIONS,
    Attention,
    Checkpointing,
    Run,
    Sizes,
    check_kernels,
)

Offload = Literal["nothing", "optimizer", "activations", "both"]
OFFLOADS: tuple[Offload, ...] = get_args(Offload)
OPTIMIZERS = ("sgd", "sgd with momentum", "adamw")
"""Names in `vramlab.programs.optimizer_states.STATES` that `vramlab.planner.program` can make."""
SCHEDULES: tuple[Schedule, ...] = ("GPipe", "1F1B")


class UnsupportedPlan(VramlabError, ValueError):
    """A plan that cannot be carried out, or not with PyTorch; the message names a way out."""


@dataclass(frozen=True)
class Plan:
    """How a model is trained on `data * tensor * pipeline` equal GPUs.

    Raises:
        UnsupportedPlan: it does not add up, or cannot be carried out.
        UnknownGPUError: no GPU of that name.
    """

    sizes: Sizes | CustomModel
    """Of the whole model, a transformer as in `vramlab.programs.transformer`; or another model,
    which has its own attention and dropout, and is neither cut nor a pipeline."""
    gpu: str | GPUModel = "A100-80GB"
    """A name in the catalogue, or the model of a GPU that is not in it."""
    batch: int = 8
    """Sequences of a step, on all GPUs together."""
    micro_batch: int | None = None
    """Sequences that a GPU takes at a time; if None, all of its share."""
    sequence: int = 1024
    """Tokens of each."""
    precision: str = "autocast bfloat16"
    """A name in `vramlab.programs.transformer_memory.PRECISIONS`."""
    optimizer: str = "adamw"
    """A name in `vramlab.programs.optimizer_states.STATES`."""
    implementation: Implementation = "foreach"
    attention: Attention = "flash"
    dropout: bool = False
    checkpointing: Checkpointing = "none"
    offload: Offload = "nothing"
    """What is kept on the host: the optimizer's states, and with ZeRO-2 and 3 the parameters and
    gradients too; or what the forward pass saves for the backward pass."""
    data: int = 1
    """Data-parallel ranks: each has its own sequences."""
    zero: Stage = 0
    """What data-parallel ranks divide among each other: see `vramlab.programs.divisions`."""
    tensor: int = 1
    """Ranks that share every matrix."""
    sequence_parallel: bool = False
    """Whether they share each sequence between the matrices, too."""
    pipeline: int = 1
    """Stages, each with some of the layers."""
    schedule: Schedule = "1F1B"

    def __post_init__(self) -> None:
        self._check_names()
        self._check_counts()
        capability = self.model.compute_capability
        try:
            if not self.is_custom:
                check_kernels(self.run, capability)
        except ValueError as error:
            raise UnsupportedPlan(str(error)) from error
        self._check_what_pytorch_has()

    @classmethod
    def of_run(cls, sizes: Sizes, run: Run, gpu: str | GPUModel) -> Plan:
        """Give a run on one GPU."""
        return cls(
            sizes,
            gpu,
            run.batch,
            sequence=run.sequence,
            precision=run.precision,
            optimizer=run.optimizer,
            implementation=run.implementation,
            attention=run.attention,
            dropout=run.dropout,
            checkpointing=run.checkpointing,
        )

    # ---- What it comes to ----

    @property
    def is_custom(self) -> bool:
        """Whether the model is another one than the built-in transformer."""
        return isinstance(self.sizes, CustomModel)

    @property
    def custom(self) -> CustomModel:
        """The model that is not the built-in transformer."""
        assert isinstance(self.sizes, CustomModel)
        return self.sizes

    @property
    def transformer(self) -> Sizes:
        """Sizes of the built-in transformer.

        Raises:
            UnsupportedPlan: the model is another one.
        """
        if isinstance(self.sizes, CustomModel):
            raise UnsupportedPlan(f"{self.sizes.name} is not the built-in transformer")
        return self.sizes

    @property
    def model(self) -> GPUModel:
        """The GPU."""
        return self.gpu if isinstance(self.gpu, GPUModel) else catalogue.find(self.gpu)

    @property
    def ranks(self) -> int:
        """How many GPUs."""
        return self.data * self.tensor * self.pipeline

    @property
    def at_a_time(self) -> int:
        """Sequences that a GPU takes at a time."""
        return self.batch // self.data if self.micro_batch is None else self.micro_batch

    @property
    def micro_batches(self) -> int:
        """Of each GPU in a step."""
        return self.batch // (self.data * self.at_a_time)

    @property
    def optimizer_on_host(self) -> bool:
        """Whether the host has the optimizer, and with ZeRO-2 and 3 parameters and gradients."""
        return self.offload in ("optimizer", "both")

    @property
    def activations_on_host(self) -> bool:
        """Whether what the forward pass saves waits on the host."""
        return self.offload in ("activations", "both")

    @property
    def _has_dtensors(self) -> bool:
        """Whether parameters are DTensors: shards of FSDP2, or cut."""
        return self.zero >= 2 or self.tensor > 1

    @cached_property
    def run(self) -> Run:
        """What one GPU does with one micro-batch."""
        return Run(
            self.at_a_time,
            self.sequence,
            self.precision,
            self.optimizer,
            self.implementation,
            "eager" if self.is_custom else self.attention,  # which has kernels for all
            self.dropout,
            self.checkpointing,
            sequence_ranks=self.tensor if self.sequence_parallel else 1,
        )

    def part(self, stage: int = 0) -> Sizes:
        """Give what a GPU of a stage has of the model, before ZeRO divides it further."""
        return one_rank_of(self.transformer, self.tensor, self.pipeline, stage)

    def stage_sizes(self, stage: int) -> Sizes:
        """Give what a stage has of the model, before anything else divides it."""
        return one_rank_of(self.transformer, 1, self.pipeline, stage)

    def in_flight(self, stage: int = 0, *, after_first: bool = False) -> int:
        """Give the most micro-batches whose activations a stage holds at the same time.

        Args:
            stage: which one.
            after_first: from the end of its first backward pass on.
        """
        if self.pipeline == 1:
            return 1
        schedule = schedule_plan(self.schedule, self.pipeline, self.micro_batches)
        return schedule.in_flight(stage, after_first=after_first)

    def cut(self, layers: int, stages: int = 1) -> Plan:
        """Give the same for a shorter model: so many layers in each of so many stages."""
        return self.but(sizes=replace(self.transformer, layers=layers * stages), pipeline=stages)

    def but(self, **changes: object) -> Plan:
        """Give the same with some changes."""
        return replace(self, **changes)  # type: ignore[arg-type]

    # ---- Whether it can be ----

    def _check_counts(self) -> None:
        for name in ("batch", "sequence", "data", "tensor", "pipeline"):
            if getattr(self, name) < 1:
                raise UnsupportedPlan(f"{name} is {getattr(self, name)}; it must be 1 at least")
        if self.micro_batch is not None and self.micro_batch < 1:
            raise UnsupportedPlan(f"a micro-batch of {self.micro_batch}; it must be 1 at least")
        if self.batch % self.data or self.batch % (self.data * self.at_a_time):
            raise UnsupportedPlan(
                f"a batch of {self.batch} cannot be shared evenly by {self.data} data-parallel "
                f"ranks in micro-batches of {self.at_a_time}: choose a batch that is a multiple "
                f"of {self.data * max(self.at_a_time, 1)}"
            )
        if isinstance(self.sizes, CustomModel):
            self._check_custom(self.sizes)
            return
        if self.sizes.learned_positions and self.sequence > self.sizes.positions:
            raise UnsupportedPlan(
                f"a sequence of {self.sequence} tokens, but the model has {self.sizes.positions} "
                "positions"
            )
        layers_of_stages(self.sizes.layers, self.pipeline)
        self.part()

    def _check_custom(self, custom: CustomModel) -> None:
        name, most = custom.name, custom.most_tokens
        has_tokens = any(each.has_tokens for each in custom.inputs)
        if has_tokens and most is not None and self.sequence > most:
            raise UnsupportedPlan(
                f"a sequence of {self.sequence} tokens, but {name} has {most} positions"
            )
        if self.tensor > 1 or self.pipeline > 1:
            raise UnsupportedPlan(
                f"{name} is neither cut nor divided into stages, which is there for the built-in "
                "transformer: leave tensor and pipeline at 1, and divide by data with zero=3"
            )
        if self.checkpointing == "selective":
            raise UnsupportedPlan(
                f"{name}: what of a layer is to be recomputed is not known; choose "
                'checkpointing="full" for whole layers, or "none"'
            )

    def _check_names(self) -> None:
        for kind, name, known in (
            ("precision", self.precision, PRECISIONS),
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("implementation", self.implementation, get_args(Implementation)),
            ("attention", self.attention, ATTENTIONS),
            ("checkpointing", self.checkpointing, CHECKPOINTINGS),
            ("offload", self.offload, OFFLOADS),
            ("schedule", self.schedule, SCHEDULES),
            ("zero", self.zero, get_args(Stage)),
        ):
            if name not in known:
                listed = ", ".join(map(str, known))
                raise UnsupportedPlan(f"no {kind} {name!r}; there are: {listed}")

    def _check_what_pytorch_has(self) -> None:
        if self.zero and self.data == 1:
            raise UnsupportedPlan(
                f"ZeRO-{self.zero} divides among data-parallel ranks, but data is 1: choose more "
                "data-parallel ranks, or zero=0"
            )
        if self.sequence_parallel and self.tensor == 1:
            raise UnsupportedPlan(
                "sequence parallelism divides among tensor-parallel ranks, but tensor is 1: "
                "choose tensor=2 or more, or leave sequence_parallel out"
            )
        if self.sequence_parallel and self.sequence % self.tensor:
            raise UnsupportedPlan(
                f"{self.tensor} ranks cannot share a sequence of {self.sequence} tokens evenly"
            )
        if self.tensor > 1 and self.data > 1 and self.zero < 2:
            raise UnsupportedPlan(
                "DistributedDataParallel takes no parameters that tensor parallelism has cut: "
                "choose zero=2 or zero=3 (FSDP2), or tensor=1, or data=1"
            )
        if self.zero == 1 and self.run.dtypes.master and self.optimizer != "adamw":
            raise UnsupportedPlan(
                f"ZeRO-1 with float32 copies is there for adamw, not for {self.optimizer}: choose "
                "adamw, another precision, or another stage"
            )
        if self.tensor > 1 and self.run.dtypes.master and self.data == 1:
            raise UnsupportedPlan(
                "float32 copies of parameters that are cut need FSDP2's mixed precision: choose "
                "data=2 or more with zero=2 or 3, or another precision"
            )
        if self.implementation == "fused" and self.optimizer != "adamw" and self._has_dtensors:
            raise UnsupportedPlan(
                f"PyTorch has no fused {self.optimizer} for parameters that FSDP2 shards or tensor "
                'parallelism cuts: choose implementation="foreach", or adamw'
            )
        if self.schedule == "1F1B" and self.micro_batches < self.pipeline:
            raise UnsupportedPlan(
                f"1F1B needs as many micro-batches as stages, but each of {self.pipeline} stages "
                f"has {self.micro_batches} in a step: choose smaller micro-batches, a larger "
                'batch, or schedule="GPipe"'
            )
        self._check_offload()

    def _check_offload(self) -> None:
        if self.optimizer_on_host and self.zero == 1:
            raise UnsupportedPlan(
                "ZeroRedundancyOptimizer keeps its states on the GPUs: choose zero=0, or zero=2 or "
                "3 (FSDP2's CPUOffloadPolicy)"
            )
        if self.optimizer_on_host and self.tensor > 1 and self.zero < 2:
            raise UnsupportedPlan(
                "parameters that are cut can be offloaded with FSDP2 only: choose data=2 or more "
                "with zero=2 or 3, or offload activations alone"
            )
        if self.activations_on_host and (self.zero > 1 or self.tensor > 1):
            raise UnsupportedPlan(
                "what is saved cannot be told from gathered or cut parameters, which need not "
                "go to the host: offload activations with zero=0 or 1 and tensor=1, or use "
                "checkpointing"
            )
