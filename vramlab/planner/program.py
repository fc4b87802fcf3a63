"""The training program of a plan: what one rank runs, in plain PyTorch.

    tensor    torch.distributed.tensor.parallel cuts the matrices of every layer
    pipeline  torch.distributed.pipelining runs micro-batches through the stages
    data      DistributedDataParallel, ZeroRedundancyOptimizer, or FSDP2
    (`vramlab_course.lessons.l20_zero.formulas`)

It runs wherever a process group has been joined: under torchrun, or as one rank alone on a virtual
GPU. A model is never whole on any GPU that does not need all of it: it is made on the meta device,
cut, and then given memory. Its parameters have no values worth keeping.

The three matrices of query, key and value are one here. A rank's part of it is to be read as that
rank's heads: who loads weights of a whole model has to sort them so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from vramlab.gpu.torch_internals import apply_to_tensors
from vramlab.planner.plan import Plan
from vramlab.programs.alone import alone
from vramlab.programs.master_weights import MasterAdamW, MasterWeights
from vramlab.programs.offloading import HostOptimizer, SavedOnHost
from vramlab.programs.optimizers import OPTIMIZERS, WAYS, states_of
from vramlab.programs.pipeline_schedules import schedule_of_torch
from vramlab.programs.transformer import DROPOUT, Transformer, TransformerPart, adapt

if TYPE_CHECKING:
    # Each of these takes a second to import that other plans need not wait for; so does
    # `vramlab.planner.sharing`.
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle

MESH = ("pipeline", "data", "tensor")
"""Ranks that share matrices are neighbours: they talk most."""


def join_mesh(plan: Plan) -> DeviceMesh | None:
    """Arrange the ranks of the process group that was joined; None for a plan of one GPU."""
    if plan.ranks == 1:
        return None
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cuda", (plan.pipeline, plan.data, plan.tensor), mesh_dim_names=MESH)


@contextmanager
def first_rank_of(plan: Plan, stage: int = 0) -> Iterator[DeviceMesh | None]:
    """Be the first rank of a stage, without the others, on the attached virtual GPU."""
    if plan.ranks == 1:
        yield None
        return
    with alone(plan.ranks, stage * plan.data * plan.tensor):
        yield join_mesh(plan)


class Training:
    """One rank's model, optimizer and batch, ready for steps.

    Args:
        plan: what is done.
        mesh: of the ranks, if there are several.
        micro_batches: how many of a step are done, of inputs that are there for all; all if None.
        begins: called when a part of a step begins: "forward", "backward", "optimizer step".

    Attributes:
        plan: what is done.
        stage: of the pipeline, that this rank works in.
        model: this rank's part of the model.
        optimizer: of its parameters.
        inputs: tokens and targets (B, S) of this rank's share of a step, where it needs them.
    """

    def __init__(
        self,
        plan: Plan,
        mesh: DeviceMesh | None = None,
        *,
        micro_batches: int | None = None,
        begins: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.plan = plan
        self.micro_batches = plan.micro_batches if micro_batches is None else micro_batches
        self._begins = begins
        self.stage = mesh["pipeline"].get_local_rank() if mesh else 0
        self._mesh = mesh
        self.model: Any = self._make_model()
        self._callable = self._replicated()
        self.optimizer = self._make_optimizer()
        self.inputs = self._make_inputs()
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
        self._begins("optimizer step")
        self.optimizer.step()
        if isinstance(self._callable, DistributedDataParallel):
            self._callable.zero_grad(set_to_none=False)
        else:
            self.optimizer.zero_grad()

    def states(self) -> list[Tensor]:
        """Return what the optimizer keeps on the GPU: states, and copies of parameters."""
        optimizer = self.optimizer
        if self.plan.zero == 1:  # a ZeroRedundancyOptimizer
            optimizer = optimizer.optim
        if isinstance(optimizer, HostOptimizer):
            return []
        if isinstance(optimizer, (MasterWeights, MasterAdamW)):
            return optimizer.states()
        return states_of(optimizer)

    def forward_and_backward(self) -> None:
        """Run all micro-batches of a step, whose gradients add up."""
        with self._sharing_loss():
            if self._schedule is not None:
                self._run_pipeline(self._schedule)
                return
            for number, inputs in enumerate(self._parts(), 1):
                with self._reducing(number == self.micro_batches):
                    loss = self._forward(inputs)
                    self._begins("backward")
                    loss.backward()
                    del loss

    def _make_inputs(self) -> dict[str, Tensor]:
        sizes = self.model.sizes
        tokens = torch.zeros(
            self.plan.batch // self.plan.data, self.plan.sequence, dtype=torch.long
        )
        needed = {"tokens": sizes.embeds, "targets": sizes.predicts}
        return {name: tokens.cuda() for name, is_needed in needed.items() if is_needed}

    def _parts(self) -> Iterable[dict[str, Tensor]]:
        """Return what the micro-batches of a step are."""
        divided = {name: each.split(self.plan.at_a_time) for name, each in self.inputs.items()}
        for number in range(self.micro_batches):
            yield {name: parts[number] for name, parts in divided.items()}

    def _loss(self, inputs: dict[str, Tensor]) -> Tensor:
        loss: Tensor = self._callable(inputs["tokens"], inputs["targets"])
        return loss

    def _forward(self, inputs: dict[str, Tensor]) -> Tensor:
        self._begins("forward")
        with self._precision(), self._saving():
            loss = self._loss(inputs)
        return loss if self.plan.micro_batches == 1 else loss / self.plan.micro_batches

    def _run_pipeline(self, schedule: PipelineScheduleSingle) -> None:
        count = self.micro_batches * self.plan.at_a_time
        inputs = {name: tensor[:count] for name, tensor in self.inputs.items()}
        tokens = [inputs["tokens"]] if "tokens" in inputs else []
        with self._precision(), self._saving():
            schedule.step(*tokens, target=inputs.get("targets"), return_outputs=False)

    def _sharing_loss(self) -> AbstractContextManager[object]:
        if self.plan.tensor == 1:
            return nullcontext()
        from torch.distributed.tensor.parallel import loss_parallel

        return loss_parallel()

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

    def _make_model(self) -> Any:
        plan, run = self.plan, self.plan.run
        kind = Transformer if plan.pipeline == 1 else TransformerPart
        with torch.device("meta"):
            model: TransformerPart = kind(
                plan.stage_sizes(self.stage),
                attention=run.attention,
                dropout=DROPOUT if run.dropout else 0.0,
                checkpointing=run.checkpointing,
                checkpoint_every=run.checkpoint_every,
                loss_chunks=run.loss_chunks,
            )
            if plan.adapter_rank:
                adapt(model, plan.adapter_rank)
        # With float32 copies FSDP2 keeps float32 shards, and casts what it gathers.
        if not (self._is_sharded and run.dtypes.master):
            model.to(getattr(torch, run.dtypes.weights))
        if self._mesh is not None and (plan.tensor > 1 or self._is_sharded):
            from vramlab.planner.sharing import cut, shard

            if plan.tensor > 1:
                cut(model, self._mesh["tensor"], plan)
                model.tie()  # before FSDP2 has the parameters; each module has got one of its own
            if self._is_sharded:
                shard(model, model.layers, self._mesh["data"], plan)
        give_memory(model, "cpu" if self._is_sharded and self.plan.optimizer_on_host else "cuda")
        return model

    def _replicated(self) -> nn.Module:
        model: nn.Module = self.model
        if self._mesh is None or self.plan.data == 1 or self._is_sharded:
            return model
        group = self._mesh.get_group("data")
        return DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)

    # ---- The optimizer ----

    def _make_optimizer(self) -> Any:
        plan, run = self.plan, self.plan.run
        parameters = [each for each in self.model.parameters() if each.requires_grad]

        def make(chosen: Any) -> torch.optim.Optimizer:
            return OPTIMIZERS[run.optimizer](chosen, **WAYS[run.implementation])

        if self._is_sharded or plan.tensor > 1:
            from vramlab.programs.tensor_parallel import parameter_groups

            return make(parameter_groups(parameters))
        if self.plan.optimizer_on_host:
            # Gradients in DDP's buckets wait there for step().
            return HostOptimizer(parameters, make, as_they_come=plan.data == 1)
        if plan.zero == 1 and self._mesh is not None:
            from torch.distributed.optim import ZeroRedundancyOptimizer

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
            output_args=(self._logits() if part.predicts else self._hidden(),),
            group=self._mesh.get_group("pipeline"),
        )
        for work in ("forward", "backward"):
            self._announce(stage, work)
        return schedule_of_torch(plan.schedule)(stage, self.micro_batches, loss_fn=loss_of)

    def _announce(self, stage: PipelineStage, part: str) -> None:
        """Let a stage tell when a part of its work on a micro-batch begins."""
        work = getattr(stage, f"{part}_one_chunk")

        def announced(*arguments: Any, **options: Any) -> Any:
            self._begins(part)
            return work(*arguments, **options)

        setattr(stage, f"{part}_one_chunk", announced)

    def _hidden(self) -> Tensor:
        """Return what goes from stage to stage, without memory."""
        plan, run = self.plan, self.plan.run
        return torch.empty(
            plan.at_a_time,
            plan.sequence // run.sequence_ranks,
            plan.transformer.width,
            dtype=getattr(torch, run.dtypes.stream),
            device="meta",
            requires_grad=True,
        )

    def _logits(self) -> Tensor:
        """Return the last stage's logits without memory: PyTorch 2.11 checks their shape."""
        plan = self.plan
        return torch.empty(
            plan.at_a_time,
            plan.sequence,
            plan.transformer.vocabulary,
            dtype=getattr(torch, plan.run.dtypes.compute),
            device="meta",
            requires_grad=True,
        )


def give_memory(model: nn.Module, device: str) -> None:
    """Allocate a model that is on the meta device, in the order in which `.cuda()` moves one.

    Parameters that several modules share are allocated once, and stay shared.
    """
    places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = defaultdict(list)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            places[parameter].append((module, name))
    allocated: dict[Tensor, Tensor] = {}

    def allocate(tensor: Tensor) -> Tensor:
        if tensor not in allocated:
            allocated[tensor] = torch.empty_like(tensor, device=device)
        return allocated[tensor]

    apply_to_tensors(model, allocate)
    for first, *others in places.values():
        shared = getattr(*first)
        for module, name in others:
            setattr(module, name, shared)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of logits (B, S, V) and targets (B, S)."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
