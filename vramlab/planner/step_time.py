"""Estimates how long a training step of the built-in transformer takes, from FLOPs and bytes.

A rank computes matrix products at a fraction of the GPU's peak FLOP/s, and moves the bytes of all
other operators at a fraction of its peak bandwidth, one after the other. Tensor parallelism adds
its collectives to that, and offloading adds what crosses the link to the host. The collectives of
data parallelism and Python's launches of kernels take place meanwhile, so that a step takes as long
as the slowest of the three. In a pipeline, stages also wait for each other (the bubble).

The fractions and counts below come from one H100 with PyTorch 2.11 and 29 training steps of three
models (`assets/recordings/h100/README.md`). `ERROR` says how far the model is from those steps; six
steps of GPT-2 take up to 1.7 times as long. No step with several GPUs was recorded, so the time of
collectives is an assumption: each rank has `LINK` of the bandwidth of its own link, NVLink or else
PCI Express. All GPUs are assumed to be in one machine. Offloading is an assumption, too.

Sources of the counts: arXiv 2204.02311 (PaLM), appendix B, for FLOPs; arXiv 1910.02054 (ZeRO), §7,
for the bytes of data parallelism; arXiv 1909.08053 (Megatron-LM), §3, for those of tensor
parallelism; arXiv 2104.04473, §2.2, for the bubble; `_multi_tensor_adamw` in torch/optim/adam.py,
PyTorch 2.13, for the passes of the optimizer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vramlab.cuda_rules.durations import LINK, MATMUL, MEMORY
from vramlab.cuda_rules.sizes import ITEM_BYTES
from vramlab.gpu_model import GPUModel
from vramlab.planner.about import trained_numbers
from vramlab.planner.plan import Plan
from vramlab.programs.transformer_memory import (
    Run,
    Sizes,
    head_kept,
    kept_bytes,
    layer_terms,
)

PASSES = 19
"""How often operators read or write a byte saved for backward, beside matrix products: fitted."""
LAUNCH_SECONDS = 0.0029
"""What Python needs for forward and backward of a layer and its optimizer step: fitted."""
OPTIMIZER_PASSES = {"sgd": 3, "sgd with momentum": 6, "adamw": 20}
"""Reads and writes of as many bytes as the parameters have, in a step that is not fused."""
ERROR = (
    "within 20 % on 23 of 29 training steps recorded on one H100, where it was fitted "
    "(11 if each model is left out of its fit)"
)
"""How far `step_time` is from what was recorded; a test counts again."""
FUSED_PASSES = {"sgd": 3, "sgd with momentum": 5, "adamw": 7}
"""The same in a fused step: each operand is read once, each result written once."""
HOST_BYTES_PER_S = 50e9
"""Memory bandwidth that the optimizer of all ranks together has on the host. Assumed."""


@dataclass(frozen=True)
class StepTime:
    """The estimated time of a step, by what it is spent on, in seconds."""

    matmul: float
    memory: float
    optimizer: float
    communication: float
    """Of data parallelism."""
    launches: float
    exchanged: float = 0.0
    """Collectives of tensor parallelism, which nothing overlaps."""
    host: float = 0.0
    """Copies to the host and back, and the optimizer there."""
    bubble: float = 0.0
    """Waiting for other stages, as a fraction of the work on micro-batches."""

    @property
    def seconds(self) -> float:
        """The whole step."""
        passes = 1 + self.bubble
        work = passes * (self.matmul + self.memory + self.exchanged) + self.optimizer
        return max(work + self.host, passes * self.launches + self.host, self.communication)

    @property
    def bound_by(self) -> str:
        """What limits the step."""
        if self.seconds == self.communication:
            return "communication"
        parts = {
            "FLOPs": self.matmul,
            "memory bandwidth": self.memory + self.optimizer,
            "tensor parallelism": self.exchanged,
        }
        if self.launches > sum(parts.values()):
            parts = {"kernel launches": self.launches}
        parts["offloading"] = self.host
        return max(parts, key=lambda name: parts[name])


def step_time(plan: Plan) -> StepTime:
    """Estimate the time of a step of a plan: of the stage with the head, which has most to do.

    Raises:
        UnsupportedPlan: The model is not the built-in transformer.
    """
    sizes, gpu, count, run = plan.part(plan.pipeline - 1), plan.model, plan.micro_batches, plan.run
    bandwidth = MEMORY * gpu.memory_bandwidth_bytes_per_s
    checkpointed = {"none": 0.0, "selective": 0.0, "full": 1.0}[plan.checkpointing]
    again = checkpointed / 3 / plan.checkpoint_every
    every = replace(run, checkpointing="none", loss_chunks=1)
    saved = kept_bytes(sizes, every)
    repeated = sizes.layers * sum(layer_terms(sizes, every).values())
    in_head = sum(head_kept(sizes, every).values()) if plan.loss_chunks > 1 else 0
    passes = FUSED_PASSES if plan.implementation == "fused" else OPTIMIZER_PASSES
    trained = trained_numbers(plan, sizes)
    updated = trained / plan.data if plan.zero else trained
    update = passes[plan.optimizer] * ITEM_BYTES[run.dtypes.state_dtype] * updated
    return StepTime(
        matmul=count
        * flops(sizes, run, trained=not plan.adapter_rank)
        / (MATMUL * _peak(gpu, run)),
        memory=count * PASSES * (saved + again * repeated + in_head / 3) / bandwidth,
        optimizer=0.0 if plan.optimizer_on_host else update / bandwidth,
        communication=sent_bytes(plan) / (LINK * _link(gpu)),
        launches=count * LAUNCH_SECONDS * sizes.layers * (1 + again),
        exchanged=exchanged_bytes(plan, sizes) / (LINK * _link(gpu)),
        host=_host_seconds(plan, sizes, update),
        bubble=(plan.pipeline - 1) / count,
    )


def _host_seconds(plan: Plan, sizes: Sizes, update: float) -> float:
    """Return the time of copies to the host and back, and of the optimizer there."""
    moved = 0.0
    seconds = 0.0
    if plan.optimizer_on_host:
        # The gradient goes down and the parameter comes up; FSDP2 has shards of both on the host.
        numbers = sizes.parameters() / (plan.data if plan.zero >= 2 else 1)
        item = ITEM_BYTES[plan.run.dtypes.weights if plan.zero < 2 else plan.run.dtypes.state_dtype]
        rounds = plan.micro_batches if plan.zero >= 2 else 1
        moved += numbers * item * rounds * (3 if plan.zero == 3 else 2)
        seconds += update * plan.ranks / HOST_BYTES_PER_S
    if plan.activations_on_host:
        moved += 2 * plan.micro_batches * kept_bytes(sizes, plan.run)
    return seconds + moved / (LINK * plan.model.host_bandwidth_bytes_per_s)


def flops(sizes: Sizes, run: Run, *, trained: bool = True) -> int:
    """Return the FLOPs of forward and backward of a micro-batch, with recomputation.

    A product of a weight costs 2 FLOPs for each of its numbers and each token; backward costs twice
    as much as forward, or as much if the weights are not trained. Causal attention computes half of
    its scores. Adapters are left out.
    """
    layer = 2 * sum(rows * columns for rows, columns in sizes.matrices)
    scores = 4 * run.sequence * sizes.attended_width
    if sizes.causal and run.attention in ("flash", "efficient"):
        scores //= 2
    recomputed = {"none": 0, "selective": scores, "full": layer + scores}[run.checkpointing]
    recomputed //= run.checkpoint_every
    head = 2 * sizes.vocabulary * sizes.width if sizes.predicts else 0
    times = 3 if trained else 2
    of_head = head * (times + (run.loss_chunks > 1))
    return run.rows * (sizes.layers * (times * layer + 3 * scores + recomputed) + of_head)


def sent_bytes(plan: Plan) -> int:
    """Return the bytes that a rank sends in a step for data parallelism.

    A ring of n ranks sends (n - 1) / n of a tensor for an all-gather or a reduce-scatter, and twice
    as much for an all-reduce. ZeRO-2 and 3 communicate for every micro-batch, DDP once in a step.
    Gradients of parameters that are not trained are not sent.
    """
    sizes, item = plan.part(), ITEM_BYTES[plan.run.dtypes.weights]
    size, trained = item * sizes.parameters(), item * trained_numbers(plan, sizes)
    count = plan.micro_batches
    rings = {
        0: 2 * trained,
        1: 3 * trained,
        2: count * (size + trained),
        3: count * (2 * size + trained),
    }[plan.zero]
    return rings * (plan.data - 1) // plan.data


def exchanged_bytes(plan: Plan, sizes: Sizes) -> int:
    """Return the bytes that a rank sends in a step for tensor parallelism.

    Two all-reduces of the residual stream in the forward pass of each layer and two in its backward
    pass, and again two if it is recomputed; sequence parallelism sends as much in two halves.
    """
    run = plan.run
    size = run.rows * sizes.width * ITEM_BYTES[run.dtypes.compute]
    recomputed = sizes.layers / plan.checkpoint_every if plan.checkpointing == "full" else 0
    reduced = 4 * sizes.layers + 2 * recomputed
    return int(plan.micro_batches * reduced * size * 2 * (plan.tensor - 1) / plan.tensor)


def _peak(gpu: GPUModel, run: Run) -> float:
    compute = run.dtypes.compute
    tensor = {
        "bfloat16": gpu.bf16_tensor_flops_per_s,
        "float16": gpu.fp16_tensor_flops_per_s,
    }.get(compute)
    return tensor or gpu.fp32_flops_per_s


def _link(gpu: GPUModel) -> int:
    return gpu.nvlink_bandwidth_bytes_per_s or gpu.pcie_bandwidth_bytes_per_s
