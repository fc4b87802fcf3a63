"""A plan: which model is trained, with which settings, on which GPUs."""

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
_AT_LEAST_1 = ("checkpoint_every", "loss_chunks")
SCHEDULES: tuple[Schedule, ...] = ("GPipe", "1F1B")


class UnsupportedPlan(VramlabError, ValueError):
    """A plan is impossible, or PyTorch does not support it; the message says what to change."""


@dataclass(frozen=True)
class Plan:
    """How a model is trained on `data * tensor * pipeline` equal GPUs.

    Raises:
        UnsupportedPlan: The plan is impossible, or PyTorch does not support it.
        UnknownGPUError: No GPU of that name.
    """

    sizes: Sizes | CustomModel
    """Sizes of the whole transformer, see `vramlab.programs.transformer`; or a custom model, which
    has its own attention and dropout, and supports neither tensor nor pipeline parallelism."""
    gpu: str | GPUModel = "A100-80GB"
    """A name in the catalogue, or a GPU that is not in it."""
    batch: int = 8
    """Global batch size, in sequences."""
    micro_batch: int | None = None
    """Sequences per GPU and forward pass; None for the whole batch of the GPU."""
    sequence: int = 1024
    """Sequence length in tokens."""
    precision: str = "autocast bfloat16"
    """A name in `vramlab.programs.transformer_memory.PRECISIONS`."""
    optimizer: str = "adamw"
    """A name in `vramlab.programs.optimizer_states.STATES`."""
    implementation: Implementation = "foreach"
    attention: Attention = "flash"
    dropout: bool = False
    checkpointing: Checkpointing = "none"
    checkpoint_every: int = 1
    """Full checkpointing recomputes one of so many layers."""
    loss_chunks: int = 1
    """How many parts of a micro-batch's tokens the head and the loss work on, one after the other;
    if there are several, logits are recomputed in the backward pass."""
    adapter_rank: int = 0
    """Rank of the LoRA adapters beside all Linear layers but the head, which alone are trained; 0
    to train all parameters."""
    offload: Offload = "nothing"
    """What to keep in host memory: optimizer states (with ZeRO-2 and 3 also parameters and
    gradients), or activations saved for backward, or both."""
    data: int = 1
    """Data-parallel ranks."""
    zero: Stage = 0
    """ZeRO stage of the data-parallel ranks: see `vramlab.programs.divisions`."""
    tensor: int = 1
    """Tensor-parallel ranks."""
    sequence_parallel: bool = False
    """Whether tensor-parallel ranks also shard activations along the sequence."""
    pipeline: int = 1
    """Pipeline stages."""
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
        """Return the plan of a run on one GPU."""
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

    # ---- Derived values ----

    @property
    def is_custom(self) -> bool:
        """Whether the model is not the built-in transformer."""
        return isinstance(self.sizes, CustomModel)

    @property
    def custom(self) -> CustomModel:
        """The custom model."""
        assert isinstance(self.sizes, CustomModel)
        return self.sizes

    @property
    def transformer(self) -> Sizes:
        """Sizes of the built-in transformer.

        Raises:
            UnsupportedPlan: The model is a custom model.
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
        """Number of GPUs."""
        return self.data * self.tensor * self.pipeline

    @property
    def at_a_time(self) -> int:
        """Sequences per GPU and forward pass."""
        return self.batch // self.data if self.micro_batch is None else self.micro_batch

    @property
    def micro_batches(self) -> int:
        """Micro-batches per GPU and step."""
        return self.batch // (self.data * self.at_a_time)

    @property
    def optimizer_on_host(self) -> bool:
        """Whether the optimizer (with ZeRO-2 and 3 also parameters and gradients) is offloaded."""
        return self.offload in ("optimizer", "both")

    @property
    def activations_on_host(self) -> bool:
        """Whether activations saved for backward are in host memory."""
        return self.offload in ("activations", "both")

    @property
    def _has_dtensors(self) -> bool:
        """Whether parameters are DTensors, because of FSDP2 or tensor parallelism."""
        return self.zero >= 2 or self.tensor > 1

    @cached_property
    def run(self) -> Run:
        """The run of one micro-batch on one GPU."""
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
            checkpoint_every=self.checkpoint_every,
            loss_chunks=self.loss_chunks,
        )

    def part(self, stage: int = 0) -> Sizes:
        """Return the sizes of a GPU's part of the model, before ZeRO shards it further."""
        return one_rank_of(self.transformer, self.tensor, self.pipeline, stage)

    def stage_sizes(self, stage: int) -> Sizes:
        """Return the sizes of a pipeline stage, before tensor parallelism and ZeRO shard it."""
        return one_rank_of(self.transformer, 1, self.pipeline, stage)

    def in_flight(self, stage: int = 0, *, after_first: bool = False) -> int:
        """Return the maximum number of micro-batches in flight in a stage.

        Args:
            stage: The pipeline stage.
            after_first: Count only after the end of the stage's first backward pass.
        """
        if self.pipeline == 1:
            return 1
        schedule = schedule_plan(self.schedule, self.pipeline, self.micro_batches)
        return schedule.in_flight(stage, after_first=after_first)

    def cut(self, layers: int, stages: int = 1) -> Plan:
        """Return the same plan for a shorter model with `stages` stages of `layers` layers."""
        return self.but(sizes=replace(self.transformer, layers=layers * stages), pipeline=stages)

    def but(self, **changes: object) -> Plan:
        """Return the same plan with some changes."""
        return replace(self, **changes)  # type: ignore[arg-type]

    # ---- Validation ----

    def _check_counts(self) -> None:
        for name in (*_AT_LEAST_1, "batch", "sequence", "data", "tensor", "pipeline"):
            if getattr(self, name) < 1:
                raise UnsupportedPlan(f"invalid {name} {getattr(self, name)}: use at least 1")
        if self.adapter_rank < 0:
            raise UnsupportedPlan(
                f"invalid adapter_rank {self.adapter_rank}: use at least 1, or 0 to train all "
                "parameters"
            )
        if self.checkpoint_every > 1 and self.checkpointing != "full":
            raise UnsupportedPlan(
                f"checkpoint_every {self.checkpoint_every} needs full checkpointing, but "
                f'checkpointing is {self.checkpointing}: use checkpointing="full"'
            )
        if self.micro_batch is not None and self.micro_batch < 1:
            raise UnsupportedPlan(f"invalid micro_batch {self.micro_batch}: use at least 1")
        if self.batch % self.data or self.batch % (self.data * self.at_a_time):
            raise UnsupportedPlan(
                f"a batch of {self.batch} cannot be divided into micro-batches of "
                f"{self.at_a_time} on {self.data} data-parallel ranks: choose a multiple of "
                f"{self.data * max(self.at_a_time, 1)}"
            )
        if isinstance(self.sizes, CustomModel):
            self._check_custom(self.sizes)
            return
        if self.sizes.learned_positions and self.sequence > self.sizes.positions:
            raise UnsupportedPlan(
                f"a sequence of {self.sequence} tokens is too long: the model supports at most "
                f"{self.sizes.positions}"
            )
        layers_of_stages(self.sizes.layers, self.pipeline)
        self.part()

    def _check_custom(self, custom: CustomModel) -> None:
        name, most = custom.name, custom.most_tokens
        has_tokens = any(each.has_tokens for each in custom.inputs)
        if has_tokens and most is not None and self.sequence > most:
            raise UnsupportedPlan(
                f"a sequence of {self.sequence} tokens is too long: {name} supports at most {most}"
            )
        if self.tensor > 1 or self.pipeline > 1:
            raise UnsupportedPlan(
                f"tensor and pipeline parallelism work only with the built-in transformer, not "
                f"with {name}: leave tensor and pipeline at 1, and shard with data and zero=3"
            )
        for option in ("checkpoint_every", "loss_chunks", "adapter_rank"):
            if getattr(self, option) > 1:
                raise UnsupportedPlan(
                    f"{option} works only with the built-in transformer, not with {name}: leave "
                    "it out"
                )
        if self.checkpointing == "selective":
            raise UnsupportedPlan(
                f'checkpointing="selective" works only with the built-in transformer, not with '
                f'{name}: use "full" or "none"'
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
                listed = ", ".join(map(repr, known))
                raise UnsupportedPlan(f"invalid {kind} {name!r}: use one of {listed}")

    def _check_what_pytorch_has(self) -> None:
        if self.zero and self.data == 1:
            raise UnsupportedPlan(
                f"ZeRO-{self.zero} needs several data-parallel ranks, but data is 1: increase "
                "data, or use zero=0"
            )
        divided = self.tensor > 1 or self.pipeline > 1
        for name, used in (
            ("loss_chunks", self.loss_chunks > 1),
            ("adapter_rank", self.adapter_rank > 0),
        ):
            if used and divided:
                raise UnsupportedPlan(
                    f"{name} works only without tensor and pipeline parallelism: leave it out, or "
                    "use tensor=1 and pipeline=1"
                )
        if self.adapter_rank and self.offload != "nothing":
            raise UnsupportedPlan(
                "adapters leave little to offload, and offloading with adapter_rank is not "
                "modelled: leave out one of them"
            )
        if self.sequence_parallel and self.tensor == 1:
            raise UnsupportedPlan(
                "sequence parallelism needs several tensor-parallel ranks, but tensor is 1: "
                "use tensor=2 or more, or leave out sequence_parallel"
            )
        if self.sequence_parallel and self.sequence % self.tensor:
            raise UnsupportedPlan(
                f"a sequence of {self.sequence} tokens cannot be divided by {self.tensor} "
                f"tensor-parallel ranks: choose a multiple of {self.tensor}"
            )
        if self.tensor > 1 and self.data > 1 and self.zero < 2:
            raise UnsupportedPlan(
                "DistributedDataParallel does not support tensor-parallel parameters: use zero=2 "
                "or zero=3 (FSDP2), or tensor=1, or data=1"
            )
        if self.zero == 1 and self.run.dtypes.master and self.optimizer != "adamw":
            raise UnsupportedPlan(
                f"ZeRO-1 with float32 master weights works only with adamw, not with "
                f"{self.optimizer}: use adamw, another precision, or another ZeRO stage"
            )
        if self.tensor > 1 and self.run.dtypes.master and self.data == 1:
            raise UnsupportedPlan(
                "float32 master weights with tensor parallelism need FSDP2's mixed precision: use "
                "data=2 or more with zero=2 or 3, or another precision"
            )
        if self.implementation == "fused" and self.optimizer != "adamw" and self._has_dtensors:
            raise UnsupportedPlan(
                f"PyTorch has no fused {self.optimizer} for DTensors (FSDP2 or tensor "
                'parallelism): use implementation="foreach", or adamw'
            )
        if self.schedule == "1F1B" and self.micro_batches < self.pipeline:
            raise UnsupportedPlan(
                f"1F1B needs at least as many micro-batches as stages, but there are "
                f"{self.pipeline} stages and {self.micro_batches} micro-batches per step: use "
                "smaller micro-batches, a larger batch, or GPipe"
            )
        self._check_offload()

    def _check_offload(self) -> None:
        if self.optimizer_on_host and self.zero == 1:
            raise UnsupportedPlan(
                "ZeroRedundancyOptimizer (ZeRO-1) cannot offload its states: use zero=0, or zero=2 "
                "or 3 (FSDP2's CPUOffloadPolicy)"
            )
        if self.optimizer_on_host and self.tensor > 1 and self.zero < 2:
            raise UnsupportedPlan(
                "with tensor parallelism, only FSDP2 can offload the optimizer: use data=2 or more "
                "with zero=2 or 3, or offload activations only"
            )
        if self.activations_on_host and (self.zero > 1 or self.tensor > 1):
            raise UnsupportedPlan(
                "activations cannot be offloaded with FSDP2 or tensor parallelism, because the "
                "offloading hooks would also move parameters: use zero=0 or 1 and tensor=1, or use "
                "checkpointing"
            )
