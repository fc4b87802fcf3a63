"""Lesson 24: LoRA and QLoRA. What frozen layers keep, what 4 bits take, and the papers' figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from vramlab import VirtualGPU, catalogue
from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure import record_timeline
from vramlab.measure.categories import blocks_by_category
from vramlab.measure.counters import held_bytes, unsplit_remainder_bytes
from vramlab.measure.timeline import Timeline
from vramlab.planner.models import llama_sizes
from vramlab.programs.transformer import Transformer
from vramlab.programs.transformer_memory import Checkpointing, Sizes
from vramlab_course.experiments.outcome import Difference, Outcome
from vramlab_course.experiments.published import figure
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l24_lora_and_qlora.adapters import AdaptedLinear, adapt
from vramlab_course.lessons.l24_lora_and_qlora.formulas import (
    Layer,
    adapter_parameters,
    bits_per_parameter,
    chain_kept_bytes,
    four_bit_bytes,
    llama_matrices,
    llama_parameters,
)
from vramlab_course.lessons.l24_lora_and_qlora.four_bits import BLOCK, SCALES_BLOCK, FourBitLinear

ALL_MATRICES = ("qkv", "project", "up", "down")
"""The Linear layers of a transformer's layer, as `Transformer` calls them."""

LLAMA_7B = llama_sizes(32_000, 4096, 32, 32, 11_008)
"""Source: arXiv 2302.13971, table 2; 11,008 is two thirds of 4 x 4096, as multiple of 256."""

LLAMA_65B = replace(LLAMA_7B, layers=80, width=8192, heads=64, feed_forward=22_016)
TWO_LAYERS = replace(LLAMA_7B, layers=2)

LLAMAS = {"7B": (32, 4096, 11_008), "65B": (80, 8192, 22_016)}
"""Layers, width and inner width."""


def _meet_cublas() -> None:
    """Have the workspaces of forward and backward."""
    small = torch.zeros(8, 8, device="cuda", requires_grad=True)
    (small @ small).sum().backward()


# ---- What is kept for the backward pass ----

CHAINS: dict[str, tuple[Layer, ...]] = {
    "all layers learn": ("learns",) * 4,
    "adapters beside all": ("adapted",) * 4,
    "adapters beside the last": ("frozen", "frozen", "frozen", "adapted"),
    "adapters beside the first": ("adapted", "frozen", "frozen", "frozen"),
}


def make_chain(layers: tuple[Layer, ...], width: int, rank: int) -> nn.Sequential:
    """Return a chain of Linear layers on the GPU, each with a GELU behind it."""
    chain = nn.Sequential()
    for layer in layers:
        linear: nn.Module = nn.Linear(width, width, bias=False, device="cuda")
        if layer != "learns":
            linear.requires_grad_(False)
        if layer == "adapted":
            linear = AdaptedLinear(linear, rank, device="cuda")  # type: ignore[arg-type]
        chain.extend([linear, nn.GELU()])
    return chain


@experiment(
    "adapters-kept",
    lesson="24",
    question="What is kept for the backward pass when most weights are frozen?",
    source="arXiv 2106.09685 §4",
    conditions=Conditions(why="what tensors take is the same on every GPU"),
)
def adapters_kept(rows: int = 4096, width: int = 2048, rank: int = 16) -> Outcome:
    """Run the forward pass of a chain of four layers, by which of them learn."""
    trial = Trial("adapters-kept", rows=rows, width=width, rank=rank)
    _meet_cublas()
    x = torch.zeros(rows, width, device="cuda")
    for name, layers in CHAINS.items():
        chain = make_chain(layers, width, rank)
        before_bytes = unsplit_remainder_bytes()
        with trial.stage(name) as forward:
            output = chain(x)
        kept_bytes = chain_kept_bytes(layers, rows, width, rank) + block_bytes(x.nbytes)
        forward.expect(expected("growth", kept_bytes + unsplit_remainder_bytes() - before_bytes))
        del output, chain
        torch.cuda.empty_cache()
    return trial.outcome()


@experiment(
    "four-bits",
    lesson="24",
    question="What does a weight of 4 bits take, and what does its product keep?",
    source="arXiv 2305.14314 §3",
    conditions=Conditions(why="what tensors take is the same on every GPU"),
)
def four_bits(rows: int = 1024, width: int = 4096) -> Outcome:
    """Keep one weight in 16 bits and in 4, and multiply by it with autograd looking on."""
    trial = Trial("four-bits", rows=rows, width=width)
    _meet_cublas()
    x = torch.zeros(rows, width, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    weight_bytes = block_bytes(tensor_bytes((width, width), "bfloat16"))
    kept: list[Any] = []

    def measure(name: str, make: Any, predicted_bytes: int) -> Any:
        before_bytes = unsplit_remainder_bytes()
        with trial.stage(name) as stage:
            kept.append(make())
        remainder_bytes = unsplit_remainder_bytes() - before_bytes
        stage.expect(expected("growth", predicted_bytes + remainder_bytes))
        return kept[-1]

    def linear() -> nn.Linear:
        return nn.Linear(width, width, bias=False, dtype=torch.bfloat16, device="cuda")

    count = width * width
    of_16_bits = measure("16 bits", linear, weight_bytes)
    measure("4 bits", lambda: FourBitLinear(of_16_bits, double=False), four_bit_bytes(count))
    of_4_bits = measure(
        "4 bits, scales in 8",
        lambda: FourBitLinear(of_16_bits),
        four_bit_bytes(count, scales_block=SCALES_BLOCK),
    )
    output_bytes = block_bytes(x.nbytes)
    measure("product, the weight turned back twice", lambda: of_4_bits(x), output_bytes)
    of_4_bits.keeps_weight = True
    measure("product, autograd left alone", lambda: of_4_bits(x), output_bytes + weight_bytes)
    return trial.outcome()


# ---- The papers' figures ----

GPT3_LAYERS, GPT3_WIDTH = 96, 12_288
"""Source: arXiv 2005.14165, table 2.1."""


@experiment(
    "lora-gpt3",
    lesson="24",
    question="What do adapters count and take beside GPT-3 175B?",
    source="arXiv 2106.09685 §4.2, table 4",
    figures=("lora-gpt3-parameters", "lora-gpt3-checkpoint"),
    conditions=Conditions(why="parameters are the same on every GPU"),
)
def lora_gpt3() -> Outcome:
    """Make the adapters of one layer's query and value, in float16; all layers are alike."""
    trial = Trial("lora-gpt3", layers=GPT3_LAYERS, width=GPT3_WIDTH)
    shape = GPT3_WIDTH, GPT3_WIDTH
    taken = {}
    for rank in (1, 8, 4):
        before_bytes = unsplit_remainder_bytes()
        with trial.stage(f"a layer, rank {rank}") as stage:
            thin = [
                torch.zeros(rank, GPT3_WIDTH, dtype=torch.float16, device="cuda")
                for _ in range(4)  # down and up, of query and value
            ]
        predicted_bytes = 4 * block_bytes(tensor_bytes((rank, GPT3_WIDTH), "float16"))
        remainder_bytes = unsplit_remainder_bytes() - before_bytes
        stage.expect(expected("growth", predicted_bytes + remainder_bytes))
        taken[rank] = GPT3_LAYERS * sum(tensor.nbytes for tensor in thin)
        del thin
    for index, rank in enumerate((1, 8)):
        counted = GPT3_LAYERS * adapter_parameters([shape, shape], rank)
        trial.find(
            "lora-gpt3-parameters",
            taken[rank] / 2 / 10**6,
            predicted=counted / 10**6,
            index=index,
            part=f"rank {rank}",
        )
    trial.find(
        "lora-gpt3-checkpoint",
        taken[4],
        predicted=2 * GPT3_LAYERS * adapter_parameters([shape, shape], 4),
        differences=[
            Difference(
                taken[4] - figure("lora-gpt3-checkpoint").nearest_bytes(),
                "35 MB are 350 GB divided by 10,000, which is rounded: it is 9,272 times less",
                "arXiv 2106.09685 §4.2",
            )
        ],
    )
    return trial.outcome()


@experiment(
    "qlora-65b",
    lesson="24",
    question="What do LLaMA 65B's weights take in 4 bits, and in training all of them?",
    source="arXiv 2305.14314 §1, §3",
    figures=("qlora-constants", "qlora-full", "qlora-7b"),
    conditions=Conditions(gpu="A100-80GB", why="what tensors take is the same on every GPU"),
)
def qlora_65b() -> Outcome:
    """Measure the largest matrix of LLaMA 65B, in 4 bits and in 16 with AdamW; count the rest."""
    trial = Trial("qlora-65b")
    _, width, inner = LLAMAS["65B"]
    linear = nn.Linear(width, inner, bias=False, dtype=torch.bfloat16, device="cuda")
    count = linear.weight.numel()
    scales = {}
    for double in (False, True):
        before_bytes = unsplit_remainder_bytes()
        with trial.stage(f"4 bits{', scales in 8' * double}") as stage:
            quantized = FourBitLinear(linear, double=double)
        predicted_bytes = four_bit_bytes(count, scales_block=SCALES_BLOCK * double)
        remainder_bytes = unsplit_remainder_bytes() - before_bytes
        stage.expect(expected("growth", predicted_bytes + remainder_bytes))
        kept = (buffer.nbytes for name, buffer in quantized.named_buffers() if name != "mean")
        scales[double] = 8 * sum(kept) / count - 4
        del quantized
    found = [scales[False], scales[True], scales[False] - scales[True]]
    counted = [bits_per_parameter(BLOCK) - 4, bits_per_parameter(BLOCK, SCALES_BLOCK) - 4]
    parts = ("scales in float32", "in 8 bits", "saved")
    for index, predicted in enumerate([*counted, counted[0] - counted[1]]):
        trial.find(
            "qlora-constants", found[index], predicted=predicted, index=index, part=parts[index]
        )
    trained_bytes = 12 * llama_parameters(*LLAMAS["65B"])
    trial.find(
        "qlora-full",
        _measured_in_training(linear) * llama_parameters(*LLAMAS["65B"]) // count,
        predicted=trained_bytes,
        differences=[
            Difference(
                trained_bytes - figure("qlora-full").nearest_bytes(),
                "65 billion is rounded: LLaMA 65B has 65.3 billion parameters",
                "arXiv 2302.13971, table 2",
            )
        ],
    )
    trial.find("qlora-7b", _base_bytes(), note=_OTHER_7B)
    return trial.outcome()


_OTHER_7B = (
    "the paper does not say what it counts, nor how it was measured; here it is seven matrices a "
    "layer of 4 bits with scales in 8, the rest in bfloat16"
)


def _measured_in_training(linear: nn.Linear) -> int:
    """Return a weight of 16 bits, its gradient, and Adam's states in float32, 12 bytes a number."""
    states = [torch.zeros_like(linear.weight, dtype=torch.float32) for _ in range(2)]
    gradient = torch.zeros_like(linear.weight)
    return sum(tensor.nbytes for tensor in (linear.weight, gradient, *states))


def _base_bytes() -> int:
    """LLaMA 7B's weights as QLoRA keeps them."""
    layers, width, inner = LLAMAS["7B"]
    shapes = llama_matrices(width, inner)
    matrices = sum(four_bit_bytes(math.prod(shape), BLOCK, SCALES_BLOCK) for shape in shapes)
    rest = llama_parameters(*LLAMAS["7B"]) - layers * sum(map(math.prod, shapes))
    return layers * matrices + 2 * rest


# ---- A step of a whole model ----


@dataclass(frozen=True)
class TuningWay:
    """How a model is trained further; all in bfloat16 but what is kept in 4 bits."""

    adapted: tuple[str, ...] = ()
    """Linear layers with adapters; without any, all weights learn."""
    four_bits: bool = False
    keeps_weight: bool = False
    """Autograd saves the dequantized weights."""
    rank: int = 16
    checkpointing: Checkpointing = "none"


WAYS = {
    "all weights learn": TuningWay(),
    "LoRA": TuningWay(ALL_MATRICES),
    "QLoRA": TuningWay(ALL_MATRICES, four_bits=True),
    "QLoRA, checkpoints": TuningWay(ALL_MATRICES, four_bits=True, checkpointing="full"),
}


def record_step(way: TuningWay, sizes: Sizes = LLAMA_7B, length: int = 2048) -> Timeline:
    """Record a step of one text on the attached GPU, when AdamW (fused) has its states already."""
    model, optimizer = tuned(way, sizes)
    tokens = torch.zeros(1, length, dtype=torch.long, device="cuda")
    with record_timeline() as recording:
        recording.watch(model=model, optimizer=optimizer, inputs=tokens)
        recording.stage("forward")
        loss = model(tokens, tokens)
        recording.stage("backward")
        loss.backward()
        recording.stage("step")
        optimizer.step()
    return recording.timeline


def tuned(way: TuningWay, sizes: Sizes) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Make the model, and an optimizer that has its states."""
    with torch.device("cuda"):
        model: nn.Module = Transformer(
            sizes, attention="flash", dropout=0.0, checkpointing=way.checkpointing
        ).to(torch.bfloat16)
    if way.adapted:
        four_bits = ALL_MATRICES if way.four_bits else ()
        adapt(model, way.rank, way.adapted, four_bits=four_bits, keeps_weight=way.keeps_weight)
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, fused=True)
    for parameter in learning:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    _meet_cublas()
    torch.cuda.empty_cache()
    return model, optimizer


def left_by_forward(way: TuningWay, sizes: Sizes = LLAMA_7B, length: int = 2048) -> int:
    """Measure what the forward pass of one text leaves behind, for all layers (`of_all_layers`)."""

    def measure(some: Sizes) -> dict[str, int]:
        with VirtualGPU(_ROOMY):
            model, _ = tuned(way, some)
            tokens = torch.zeros(1, length, dtype=torch.long, device="cuda")
            before_bytes = held_bytes()
            loss = model(tokens, tokens)
            after_bytes = held_bytes()
            del loss
        return {"left": after_bytes - before_bytes}

    return of_all_layers(measure, sizes)["left"]


def step_peak(way: TuningWay, sizes: Sizes = LLAMA_7B, length: int = 2048) -> dict[str, int]:
    """Measure the peak of a step by category, for all layers (`of_all_layers`)."""

    def measure(some: Sizes) -> dict[str, int]:
        with VirtualGPU(_ROOMY):
            timeline = record_step(way, some, length)
        parts = blocks_by_category(timeline, timeline.peak().position)
        return {shown: parts.get(name, 0) for name, shown in _NAMES.items()}

    return of_all_layers(measure, sizes)


def of_all_layers(measure: Callable[[Sizes], dict[str, int]], sizes: Sizes) -> dict[str, int]:
    """Measure a model with two layers and with three; let the others repeat the difference.

    That is exact where all layers are alike and the peak comes in the same place: a step peaks in
    the last layers, or at its end.

    Args:
        measure: gives bytes by name.
        sizes: of the model, with two layers at least.
    """
    two, three = (measure(replace(sizes, layers=layers)) for layers in (2, 3))
    return {
        name: size_bytes + (sizes.layers - 2) * (three[name] - size_bytes)
        for name, size_bytes in two.items()
    }


_ROOMY = replace(catalogue.find("A100-80GB"), total_bytes=2**50, nvml_total_bytes=2**51)
"""What does not fit a GPU is measured, too. It has every kernel; bytes are the same on others."""
_NAMES = {
    "parameters": "parameters",
    "buffers": "buffers: weights in 4 bits",
    "gradients": "gradients",
    "optimizer states": "optimizer states",
    "activations": "activations",
    "temporaries": "temporaries",
    "workspaces": "workspaces",
    "inputs": "inputs",
}
"""Categories as they are called here, in the order of the pictures."""
