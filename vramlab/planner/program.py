"""The training program of a plan: what one rank runs, in plain PyTorch.

    tensor    torch.distributed.tensor.parallel cuts the matrices of every layer
    pipeline  torch.distributed.pipelining runs micro-batches through the stages
    data      DistributedDataParallel, ZeroRedundancyOptimizer, or FSDP2
    (`vramlab_course.formulas.zero`)

It runs wherever a process group has been joined: under torchrun, or as one rank alone on a virtual
GPU. A model is never whole on any GPU that does not need all of it: it is made on the meta device,
cut, and then given memory. Its parameters have no values worth keeping.

The three matrices of query, key and value are one here. A rank's part of it is to be read as that
rank's heads: who loads weights of a whole model has to sort them so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from vramlab.planner.plan import Plan
from vramlab.programs.alone import alone
from vramlab.programs.master_weights import MasterAdamW, MasterWeights
from vramlab.programs.offloading import HostOptimizer, SavedOnHost
from vramlab.programs.optimizers import OPTIMIZERS, WAYS, states_of
from vramlab.programs.pipeline_schedules import schedule_of_torch
from vramlab.programs.tensor_parallel import parameter_groups
from vramlab.programs.transformer import DROPOUT, Layer, Transformer, TransformerPart

if TYPE_CHECKING:
    # It brings torch.export and Dynamo, which take a second that other plans need not wait for.
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle

MESH = ("pipeline", "data", "tensor")
"""Ranks that share matrices are neighbours: they talk most."""


def join_mesh(plan: Plan) -> DeviceMesh | None:
    """Arrange the ranks of the process group that was joined; None for a plan of one GPU."""
    if plan.ranks == 1:
        return None
    return init_device_mesh("cuda", (plan.pipeline, plan.data, plan.tensor), mesh_dim_names=MESH)


@contextmanager
def first_rank_of(plan: Plan, stage: int = 0) -> Iterator[DeviceMesh | None]:
    """Be the first rank of a stage, without the others, on the attached virtual GPU."""
    with alone(plan.ranks, stage * plan.data * plan.tensor):
        yield join_mesh(plan)


class Training:
    """One rank's model, optimizer and batch, ready for steps.

    Attributes:
        plan: what is done.
        stage: of the pipeline, that this rank works in.
        model: this rank's part of the model.
        optimizer: of its parameters.
        inputs: tokens and targets (B, S) of this rank's share of a step, where it needs them.
    """

    def __init__(self, plan: Plan, mesh: DeviceMesh | None = None) -> None:
        self.plan = plan
        self.stage = mesh["pipeline"].get_local_rank() if mesh else 0
        self._mesh = mesh
        self.model = self._make_model()
        self._callable = self._replicated()
        self.optimizer = self._make_optimizer()
        tokens = torch.zeros(plan.batch // plan.data, plan.sequence, dtype=torch.long)
        self.inputs = {
            name: tokens.cuda()
            for name, needed in (
                ("tokens", self.model.sizes.embeds),
                ("targets", self.model.sizes.predicts),
            )
            if needed
        }
        self._schedule = self._make_schedule() if plan.pipeline > 1 else None

    # ---- Steps ----

    def step(self) -> None:
        """Train on one batch."""
        self.forward_and_backward()
        self.update()

    def update(self) -> None:
        """Use the gradients, and let go of them, unless they lie in DDP's buckets.

        There they stay to be added to: else the micro-batches that are not reduced would make new
        ones beside the buckets.
        """
        self.optimizer.step()
        if isinstance(self._callable, DistributedDataParallel):
            self._callable.zero_grad(set_to_none=False)
        else:
            self.optimizer.zero_grad()

    def states(self) -> list[Tensor]:
        """What the optimizer keeps on the GPU: states, and copies of parameters."""
        optimizer = self.optimizer
        if isinstance(optimizer, ZeroRedundancyOptimizer):
            optimizer = optimizer.optim
        if isinstance(optimizer, HostOptimizer):
            return []
        if isinstance(optimizer, (MasterWeights, MasterAdamW)):
            return optimizer.states()
        return states_of(optimizer)

    def forward_and_backward(self) -> None:
        """All micro-batches of a step, whose gradients add up."""
        with loss_parallel() if self.plan.tensor > 1 else nullcontext():
            if self._schedule is not None:
                self._run_pipeline(self._schedule)
                return
            micro_batches = zip(
                self.inputs["tokens"].split(self.plan.at_a_time),
                self.inputs["targets"].split(self.plan.at_a_time),
                strict=True,
            )
            for number, (tokens, targets) in enumerate(micro_batches, 1):
                with self._reducing(number == self.plan.micro_batches):
                    self._forward(tokens, targets).backward()

    def _forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        with self._precision(), self._saving():
            loss: Tensor = self._callable(tokens, targets)
        return loss if self.plan.micro_batches == 1 else loss / self.plan.micro_batches

    def _run_pipeline(self, schedule: PipelineScheduleSingle) -> None:
        tokens = [self.inputs["tokens"]] if "tokens" in self.inputs else []
        with self._precision(), self._saving():
            schedule.step(*tokens, target=self.inputs.get("targets"), return_outputs=False)

    def _reducing(self, is_last: bool) -> AbstractContextManager[object]:
        """DDP reduces gradients after the last micro-batch of a step only."""
        if isinstance(self._callable, DistributedDataParallel) and not is_last:
            return self._callable.no_sync()
        return nullcontext()

    def _precision(self) -> AbstractContextManager[object]:
        dtypes = self.plan.run.dtypes
        if not dtypes.autocast:
            return nullcontext()
        return torch.autocast("cuda", dtype=getattr(torch, dtypes.compute))

    def _saving(self) -> AbstractContextManager[object]:
        if self.plan.activations_on_host:
            return SavedOnHost(self.model.parameters())
        return nullcontext()

    # ---- The model ----

    @property
    def _is_sharded(self) -> bool:
        """Whether FSDP2 has the parameters."""
        return self.plan.zero >= 2

    def _make_model(self) -> TransformerPart:
        plan, run = self.plan, self.plan.run
        kind = Transformer if plan.pipeline == 1 else TransformerPart
        with torch.device("meta"):
            model = kind(
                plan.stage_sizes(self.stage),
                attention=run.attention,
                dropout=DROPOUT if run.dropout else 0.0,
                checkpointing=run.checkpointing,
            )
        # With float32 copies FSDP2 keeps float32 shards, and casts what it gathers.
        if not (self._is_sharded and run.dtypes.master):
            model.to(getattr(torch, run.dtypes.weights))
        if self._mesh is not None and plan.tensor > 1:
            cut(model, self._mesh["tensor"], plan)
        if self._mesh is not None and self._is_sharded:
            self._shard(model, self._mesh["data"])
        model.to_empty(device="cpu" if self._is_sharded and self.plan.optimizer_on_host else "cuda")
        model.tie()
        return model

    def _shard(self, model: TransformerPart, mesh: DeviceMesh) -> None:
        options: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": self.plan.zero == 3}
        if self.plan.run.dtypes.master:
            compute = getattr(torch, self.plan.run.dtypes.compute)
            options["mp_policy"] = MixedPrecisionPolicy(param_dtype=compute)
        if self.plan.optimizer_on_host:
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
        for layer in model.layers:
            fully_shard(layer, **options)
        # The root's parameters would be needed again at once.
        fully_shard(model, **options | {"reshard_after_forward": False})

    def _replicated(self) -> nn.Module:
        if self._mesh is None or self.plan.data == 1 or self._is_sharded:
            return self.model
        group = self._mesh.get_group("data")
        return DistributedDataParallel(
            self.model, process_group=group, gradient_as_bucket_view=True
        )

    # ---- The optimizer ----

    def _make_optimizer(self) -> Any:
        plan, run = self.plan, self.plan.run
        parameters = list(self.model.parameters())

        def make(chosen: Any) -> torch.optim.Optimizer:
            return OPTIMIZERS[run.optimizer](chosen, **WAYS[run.implementation])

        if self._is_sharded or plan.tensor > 1:
            return make(parameter_groups(parameters))
        if self.plan.optimizer_on_host:
            # Gradients in DDP's buckets wait there for step().
            return HostOptimizer(parameters, make, as_they_come=plan.data == 1)
        if plan.zero == 1 and self._mesh is not None:
            return ZeroRedundancyOptimizer(
                parameters,
                MasterAdamW if run.dtypes.master else make,  # type: ignore[arg-type]
                process_group=self._mesh.get_group("data"),
            )
        return MasterWeights(parameters, make) if run.dtypes.master else make(parameters)

    # ---- The pipeline ----

    def _make_schedule(self) -> PipelineScheduleSingle:
        from torch.distributed.pipelining import PipelineStage

        assert self._mesh is not None
        plan, part = self.plan, self.model.sizes
        tokens = torch.empty(plan.at_a_time, plan.sequence, dtype=torch.long, device="meta")
        stage = PipelineStage(
            self._callable,
            self.stage,
            plan.pipeline,
            torch.device("cuda", torch.cuda.current_device()),
            input_args=(tokens if part.embeds else self._hidden(),),
            output_args=(self._hidden(),),
            group=self._mesh.get_group("pipeline"),
        )
        return schedule_of_torch(plan.schedule)(stage, plan.micro_batches, loss_fn=loss_of)

    def _hidden(self) -> Tensor:
        """What goes from stage to stage, without memory."""
        plan, run = self.plan, self.plan.run
        return torch.empty(
            plan.at_a_time,
            plan.sequence // run.sequence_ranks,
            plan.sizes.width,
            dtype=getattr(torch, run.dtypes.stream),
            device="meta",
            requires_grad=True,
        )


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of logits (B, S, V) and targets (B, S)."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def cut(model: TransformerPart, mesh: DeviceMesh, plan: Plan) -> None:
    """Give this rank its part of every matrix, as arXiv 1909.08053 cuts them.

    What it does between the matrices is the same on every rank, or with `plan.sequence_parallel`
    for its own part of each sequence.
    """
    between = Shard(1) if plan.sequence_parallel else Replicate()  # of (B, S, W)
    styles: dict[str, ParallelStyle] = {}
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)
        styles |= {
            f"layers.{number}.{name}": style
            for name, style in {
                "attention.qkv": ColwiseParallel(input_layouts=between),
                "attention.project": RowwiseParallel(output_layouts=between),
                "feed_forward.up": ColwiseParallel(input_layouts=between),
                "feed_forward.down": RowwiseParallel(output_layouts=between),
            }.items()
        }
        if plan.sequence_parallel:
            for norm in ("attention_norm", "feed_forward_norm"):
                styles[f"layers.{number}.{norm}"] = SequenceParallel()
        layer.attention.heads //= plan.tensor
        layer.attention.kv_heads //= plan.tensor
    if model.tokens is not None:
        styles["tokens"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    if model.head is not None:
        if plan.sequence_parallel:
            styles["norm"] = SequenceParallel()
        styles["head"] = ColwiseParallel(
            input_layouts=between, output_layouts=Shard(-1), use_local_output=False
        )
    parallelize_module(model, mesh, styles)
    if plan.sequence_parallel:
        model.sequence_ranks = plan.tensor
        model.first_position = mesh.get_local_rank() * plan.sequence // plan.tensor
