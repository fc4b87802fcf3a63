"""Lesson 17: what the host can keep for the GPU, what stays on the GPU, and what has to travel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import get_args

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.nn.functional import scaled_dot_product_attention

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure import Transfers, record_transfers
from vramlab.measure.flops import count_flops
from vramlab.programs.offloading import HostOptimizer, SavedOnHost, StreamedLayers
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l17_offloading import formulas as offloading
from vramlab_course.lessons.l17_offloading.formulas import HELD_PER_PARAMETER, Saving


def relu_chain(layers: int, width: int) -> nn.Sequential:
    """Make Linear and ReLU in turn, without biases: (batch, width) to (batch, width)."""
    pairs = ((nn.Linear(width, width, bias=False), nn.ReLU()) for _ in range(layers))
    return nn.Sequential(*chain.from_iterable(pairs))


def saving(way: Saving, parameters: Sequence[Tensor]) -> AbstractContextManager[object]:
    """Return the context in which forward has to run."""
    if way == "on the GPU":
        return nullcontext()
    return save_on_cpu() if way == "save_on_cpu" else SavedOnHost(parameters)


@experiment(
    "offload-activations",
    lesson="17",
    question="What is left on the GPU when saved tensors go to the host?",
    source="000 §5.2; torch.autograd.graph.save_on_cpu",
    conditions=Conditions(gpu="T4"),
)
def offload_activations(layers: int = 8, width: int = 1024, batch: int = 8192) -> Outcome:
    """Run a chain of Linear and ReLU with its saved tensors in three places."""
    trial = Trial("offload-activations", layers=layers, width=width, batch=batch)
    model = relu_chain(layers, width).to("cuda")
    x = torch.zeros(batch, width, device="cuda")
    model(x).square().mean().backward()  # cuBLAS's workspaces
    model.zero_grad()
    ways: tuple[Saving, ...] = get_args(Saving)
    for way in ways:
        kept_bytes = offloading.kept_after_forward_bytes(way, layers, batch, width)
        peak_bytes = offloading.backward_peak_bytes(way, layers, batch, width)
        held_bytes = torch.cuda.memory_allocated()
        with (
            trial.stage(f"{way}: forward", expected("growth", kept_bytes)),
            saving(way, list(model.parameters())),
        ):
            loss = model(x).square().mean()
        with trial.stage(f"{way}: backward", expected("peak", held_bytes + peak_bytes)):
            loss.backward()
        model.zero_grad()
        del loss
    return trial.outcome()


@experiment(
    "offload-optimizer",
    lesson="17",
    question="How much of 16 bytes per parameter is left on the GPU with the optimizer elsewhere?",
    source="ZeRO-Offload, arXiv 2101.06840",
    conditions=Conditions(gpu="T4"),
)
def offload_optimizer(layers: int = 4, width: int = 2048, batch: int = 64) -> Outcome:
    """Train in mixed precision with Adam: what the GPU holds between backward and step.

    Once with everything on the GPU, then with the optimizer on the host, where gradients wait for
    step() or leave one by one.
    """
    trial = Trial("offload-optimizer", layers=layers, width=width, batch=batch)
    parameters = layers * width * width
    for way, per_parameter in HELD_PER_PARAMETER.items():
        before_bytes = torch.cuda.memory_allocated()
        model = relu_chain(layers, width).half().to("cuda")
        optimizer: _GpuOptimizer | HostOptimizer
        if way == "all on the GPU":
            optimizer = _GpuOptimizer(list(model.parameters()))
        else:
            as_they_come = way == "gradients leave"
            optimizer = HostOptimizer(model.parameters(), adam, as_they_come=as_they_come)
        x = torch.zeros(batch, width, dtype=torch.float16, device="cuda")
        model(x).float().square().mean().backward()
        optimizer.step()
        workspaces_bytes = _workspaces(before_bytes, optimizer, model, x)
        held_bytes = before_bytes + workspaces_bytes + block_bytes(x.nbytes)
        counters_bytes = block_bytes(4) * layers if way == "all on the GPU" else 0  # fused Adam's
        with trial.stage(
            f"{way}: before step()",
            expected("allocated", held_bytes + per_parameter * parameters + counters_bytes),
        ):
            model(x).float().square().mean().backward()
        optimizer.step()
        del model, optimizer, x
        torch.cuda.empty_cache()
    return trial.outcome()


def _workspaces(
    before_bytes: int, optimizer: _GpuOptimizer | HostOptimizer, model: nn.Module, x: Tensor
) -> int:
    """Return what the first step has left that is no tensor of the program: cuBLAS's workspaces."""
    tensors = [x, *model.parameters()]
    if isinstance(optimizer, _GpuOptimizer):
        tensors += [*optimizer.masters, *optimizer.states()]
    known_bytes = sum(block_bytes(tensor.nbytes) for tensor in tensors)
    return torch.cuda.memory_allocated() - before_bytes - known_bytes


@experiment(
    "stream-layers",
    lesson="17",
    question="How much of a model has to be on the GPU at a time?",
    source="ZeRO-Infinity, arXiv 2104.07857",
    conditions=Conditions(gpu="T4"),
)
def stream_layers(layers: int = 8, width: int = 2048, batch: int = 64) -> Outcome:
    """Run a chain whose weights are on the host: what forward leaves, at most."""
    trial = Trial("stream-layers", layers=layers, width=width, batch=batch)
    weight_bytes, rows_bytes = tensor_bytes((width, width)), tensor_bytes((batch, width))
    for way, at_once in (("all on the GPU", layers), ("one by one", 1), ("one ahead", 2)):
        x = torch.zeros(batch, width, device="cuda")
        _chain(way, layers, width)(x).sum().backward()  # cuBLAS's workspaces
        before_bytes = torch.cuda.memory_allocated()
        kept_bytes = (layers * weight_bytes if way == "all on the GPU" else 0) + layers * rows_bytes
        # While a layer works, the outputs of those before it are there, and those of its Linear
        # and its ReLU. The last one decides; with one ahead the last but one, which has company.
        outputs = layers if way == "one ahead" else layers + 1
        peak_bytes = before_bytes + at_once * weight_bytes + outputs * rows_bytes
        with trial.stage(
            f"{way}: forward", expected("growth", kept_bytes), expected("peak", peak_bytes)
        ):
            model = _chain(way, layers, width)
            y = model(x)
        del model, x, y
        torch.cuda.empty_cache()
    return trial.outcome()


def _chain(way: str, layers: int, width: int) -> nn.Module:
    if way == "all on the GPU":
        return relu_chain(layers, width).to("cuda")
    return _streamed([relu_chain(1, width) for _ in range(layers)], prefetch=way == "one ahead")


def _streamed(layers: Sequence[nn.Module], *, prefetch: bool) -> StreamedLayers:
    if prefetch:
        for parameter in nn.ModuleList(layers).parameters():
            parameter.data = parameter.data.pin_memory()
    return StreamedLayers(layers, prefetch=prefetch)


def adam(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """Make AdamW as everywhere in this lesson."""
    return torch.optim.AdamW(parameters, lr=1e-3)


class _GpuOptimizer:
    """Mixed precision's Adam with everything on the GPU: float32 copies, and fused updates."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        self.masters = [nn.Parameter(p.detach().float()) for p in parameters]
        self._optimizer = torch.optim.AdamW(self.masters, lr=1e-3, fused=True)

    def states(self) -> list[Tensor]:
        """Return every tensor of the states."""
        kept = self._optimizer.state.values()
        return [value for state in kept for value in state.values() if isinstance(value, Tensor)]

    def step(self) -> None:
        """Update parameter by parameter, so that one gradient is in float32 at a time."""
        for parameter, master in zip(self._parameters, self.masters, strict=True):
            if parameter.grad is None:
                continue
            master.grad, parameter.grad = parameter.grad.float(), None
            self._optimizer.step()
            master.grad = None
            with torch.no_grad():
                parameter.copy_(master)


class PreNormBlock(nn.Module):
    """A layer of a transformer, (batch, length, width) to the same; about 12 x width^2 parameters.

    Layer norms before attention and before the MLP, causal attention by torch's own kernel, GELU.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Attend, then think, each added to what came in."""
        attention_norm, mlp_norm = self.norms
        qkv = self.qkv(attention_norm(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        output: Tensor = x + self.mlp(mlp_norm(x))
        return output


@dataclass(frozen=True)
class StepReading:
    """One training step of a stack of transformer layers, the second, on the current GPU."""

    parameters: int
    """How many there are."""
    peak_bytes: int
    """The highest allocated bytes."""
    transfers: Transfers
    """Copies between host and GPU."""
    flops: int
    """Of matrix products, those of recomputation too."""


def read_step(
    width: int,
    layers: int,
    batch: int,
    length: int,
    *,
    activations: bool = False,
    optimizer: bool = False,
    parameters: bool = False,
) -> StepReading:
    """Measure a training step in float16, with Adam in float32, and parts of it on the host.

    Args:
        width: of the layers; attention has heads of 64.
        layers: how many `PreNormBlock`s.
        batch: sequences in the step.
        length: tokens of each.
        activations: saved tensors go to the host (`SavedOnHost`).
        optimizer: Adam works there (`HostOptimizer`), and gradients leave one by one.
        parameters: layers are streamed (`StreamedLayers`), and the optimizer is on the host.
    """
    blocks = [PreNormBlock(width, max(width // 64, 1)).half() for _ in range(layers)]
    count = sum(p.numel() for block in blocks for p in block.parameters())
    model: nn.Module
    step: Callable[[], object]
    if parameters:
        model = _streamed(blocks, prefetch=True)
        step = _HostStep(list(model.parameters())).step
    else:
        model = nn.Sequential(*blocks).to("cuda")
        step = (
            HostOptimizer(model.parameters(), adam, pin_memory=True).step
            if optimizer
            else _GpuOptimizer(list(model.parameters())).step
        )
    x = torch.zeros(batch, length, width, dtype=torch.float16, device="cuda")
    kept = [] if parameters else list(model.parameters())

    def train() -> None:
        with SavedOnHost(kept, pin_memory=True) if activations else nullcontext():
            loss = model(x).float().square().mean()
        loss.backward()
        step()

    # Not in the step whose peak is read: the counter's hooks keep tensors of checkpointed layers.
    with count_flops() as counter:
        train()
    torch.cuda.reset_peak_memory_stats()
    with record_transfers() as transfers:
        train()
    return StepReading(
        count, torch.cuda.max_memory_allocated(), transfers, counter.get_total_flops()
    )


class _HostStep:
    """Adam in float32 for parameters that are on the host in half precision."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        self._masters = [nn.Parameter(p.detach().float()) for p in parameters]
        self._optimizer = adam(self._masters)

    def step(self) -> None:
        """Update all parameters in place."""
        for parameter, master in zip(self._parameters, self._masters, strict=True):
            if parameter.grad is not None:
                master.grad, parameter.grad = parameter.grad.float(), None
        self._optimizer.step()
        with torch.no_grad():
            for parameter, master in zip(self._parameters, self._masters, strict=True):
                parameter.copy_(master)
