"""Estimates how long a training step of the built-in transformer takes, from FLOPs and bytes.

A step takes the larger of what the GPU computes, what its links carry, and what Python needs to
launch the kernels. The GPU computes matrix products at a fraction of its peak FLOP/s, and moves
the bytes of all other operators at a fraction of its peak bandwidth, one after the other.

The fractions and counts below come from one H100 with PyTorch 2.11 and 29 training steps of three
models (`assets/recordings/h100/README.md`). `ERROR` says how far the model is from those steps; six
steps of GPT-2 take up to 1.7 times as long. No step with several GPUs was recorded, so the time of
collectives is an assumption: each rank has `LINK` of the bandwidth of its own link, NVLink or else
PCI Express, and communication overlaps with computation completely. All GPUs are assumed to be in
one machine.

Sources of the counts: arXiv 2204.02311 (PaLM), appendix B, for FLOPs; arXiv 1910.02054 (ZeRO), §7,
for the bytes of collectives; `_multi_tensor_adamw` in torch/optim/adam.py, PyTorch 2.13, for the
passes of the optimizer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vramlab.cuda_rules.durations import LINK, MATMUL, MEMORY
from vramlab.cuda_rules.sizes import ITEM_BYTES
from vramlab.gpu_model import GPUModel
from vramlab.planner.plan import Plan, UnsupportedPlan
from vramlab.programs.transformer_memory import Run, Sizes, kept_bytes, layer_terms

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


@dataclass(frozen=True)
class StepTime:
    """The estimated time of a step, by what it is spent on, in seconds."""

    matmul: float
    memory: float
    optimizer: float
    communication: float
    launches: float

    @property
    def seconds(self) -> float:
        """The whole step."""
        return max(self.matmul + self.memory + self.optimizer, self.communication, self.launches)

    @property
    def bound_by(self) -> str:
        """What limits the step."""
        if self.seconds == self.launches:
            return "kernel launches"
        if self.seconds == self.communication:
            return "communication"
        return "FLOPs" if self.matmul >= self.memory + self.optimizer else "memory bandwidth"


def step_time(plan: Plan) -> StepTime:
    """Estimate the time of a step of a plan.

    Raises:
        UnsupportedPlan: The plan has parts without a time model: offloading, tensor or pipeline
            parallelism, or a model that is not the built-in transformer.
    """
    if plan.tensor > 1 or plan.pipeline > 1 or plan.offload != "nothing":
        raise UnsupportedPlan(
            "step times of tensor or pipeline parallelism and of offloading are not modelled: "
            "leave them out"
        )
    sizes, gpu, count = plan.transformer, plan.model, plan.micro_batches
    numbers = sizes.parameters()
    bandwidth = MEMORY * gpu.memory_bandwidth_bytes_per_s
    again = {"none": 0.0, "selective": 0.0, "full": 1 / 3}[plan.checkpointing]
    saved = kept_bytes(sizes, replace(plan.run, checkpointing="none"))
    repeated = sizes.layers * sum(
        layer_terms(sizes, replace(plan.run, checkpointing="none")).values()
    )
    passes = FUSED_PASSES if plan.implementation == "fused" else OPTIMIZER_PASSES
    updated = numbers / plan.data if plan.zero else numbers
    state = ITEM_BYTES[plan.run.dtypes.state_dtype]
    return StepTime(
        matmul=count * flops(sizes, plan.run) / (MATMUL * _peak(gpu, plan.run)),
        memory=count * PASSES * (saved + again * repeated) / bandwidth,
        optimizer=passes[plan.optimizer] * state * updated / bandwidth,
        communication=sent_bytes(plan) / (LINK * _link(gpu)),
        launches=count * LAUNCH_SECONDS * sizes.layers * (1 + again),
    )


def flops(sizes: Sizes, run: Run) -> int:
    """Return the FLOPs of forward and backward of a micro-batch, with recomputation.

    A product of a weight costs 2 FLOPs for each of its numbers and each token; backward costs twice
    as much as forward. Causal attention computes half of its scores.
    """
    layer = sum(rows * columns for rows, columns in sizes.matrices)
    scores = 4 * run.sequence * sizes.attended_width
    if sizes.causal and run.attention in ("flash", "efficient"):
        scores //= 2
    per_layer = 2 * layer + scores
    recomputed = {"none": 0, "selective": scores, "full": per_layer}[run.checkpointing]
    head = 2 * sizes.vocabulary * sizes.width
    return run.rows * (3 * (sizes.layers * per_layer + head) + sizes.layers * recomputed)


def sent_bytes(plan: Plan) -> int:
    """Return the bytes that a rank sends in a step.

    A ring of n ranks sends (n - 1) / n of a tensor for an all-gather or a reduce-scatter, and twice
    as much for an all-reduce. ZeRO-2 and 3 communicate for every micro-batch, DDP once in a step.
    """
    dtypes = plan.run.dtypes
    size = plan.transformer.parameters() * ITEM_BYTES[dtypes.weights]
    rings = {0: 2, 1: 3, 2: 2 * plan.micro_batches, 3: 3 * plan.micro_batches}[plan.zero]
    return rings * size * (plan.data - 1) // plan.data


def _peak(gpu: GPUModel, run: Run) -> float:
    compute = run.dtypes.compute
    tensor = {
        "bfloat16": gpu.bf16_tensor_flops_per_s,
        "float16": gpu.fp16_tensor_flops_per_s,
    }.get(compute)
    return tensor or gpu.fp32_flops_per_s


def _link(gpu: GPUModel) -> int:
    return gpu.nvlink_bandwidth_bytes_per_s or gpu.pcie_bandwidth_bytes_per_s
