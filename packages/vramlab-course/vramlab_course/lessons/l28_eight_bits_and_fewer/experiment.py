"""Lesson 28: numbers of 8 bits and fewer, and what layers keep that multiply in them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from vramlab.measure import record_saved_tensors
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.published import figure
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.training import SCALAR_BYTES
from vramlab_course.lessons.l28_eight_bits_and_fewer.eight_bits import (
    BLOCK,
    E4M3,
    E5M2,
    EightBitLinear,
    cast_blocks,
)
from vramlab_course.lessons.l28_eight_bits_and_fewer.formulas import (
    Recipe,
    gelu_chain_bytes,
    linear_kept_bytes,
)

RECIPES: tuple[Recipe, ...] = ("16 bits", "8 bits, cast again", "8 bits, kept")

HOPPER = Conditions(gpu="H100", why="8-bit products need compute capability 8.9")


def linear(inputs: int, outputs: int, recipe: Recipe) -> nn.Module:
    """Make a Linear layer without bias and with a float32 weight, for `region(recipe)`."""
    if recipe == "16 bits":
        return nn.Linear(inputs, outputs, bias=False)
    return EightBitLinear(inputs, outputs, "casts" if recipe == "8 bits, kept" else "given")


def region(recipe: Recipe) -> AbstractContextManager[Any]:
    """Choose what a forward pass runs in: autocast to bfloat16; nothing, where layers cast."""
    return torch.autocast("cuda", torch.bfloat16) if recipe == "16 bits" else nullcontext()


def _warm_up() -> None:
    """Let both threads, of forward and of backward, take cuBLAS's workspaces."""
    small = torch.ones(16, 16, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    (small @ small).sum().backward()


def states_per_parameter(recipe: Recipe, width: int = 1024) -> dict[str, int]:
    """Measure a layer between a forward and a backward pass, when its gradient is there.

    Args:
        recipe: how the layer multiplies.
        width: of its input and its output.

    Returns:
        Bytes for each parameter.
    """
    layer = linear(width, width, recipe).to("cuda")
    (weight,) = layer.parameters()
    x = torch.zeros(width // 2, width, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    optimizer = torch.optim.AdamW([weight], fused=True)

    def forward() -> torch.Tensor:
        with region(recipe):
            loss: torch.Tensor = layer(x).sum()
        return loss

    forward().backward()
    optimizer.step()
    with record_saved_tensors(layer) as recording:
        loss = forward()
    of_weight = recording.saved(loss).kept_bytes_by(
        lambda tensor: "casts" if sorted(tensor.shape) == sorted(weight.shape) else "activations"
    )
    assert weight.grad is not None
    states = optimizer.state[weight].values()
    parts = {
        "weights": weight.nbytes,
        "gradients": weight.grad.nbytes,
        "AdamW": sum(each.nbytes for each in states if each.numel() == weight.numel()),
        "casts": of_weight.get("casts", 0),
    }
    return {name: size_bytes // weight.numel() for name, size_bytes in parts.items() if size_bytes}


@experiment(
    "eight-bit-chain",
    lesson="28",
    question="Half the bits again: does a forward pass keep half?",
    source="arXiv 2209.05433",
    conditions=HOPPER,
)
def eight_bit_chain(rows: int = 8192, width: int = 1024, layers: int = 4) -> Outcome:
    """Measure what Linear layers and GELUs in turn keep, in 16 bits and in 8.

    Args:
        rows: of the input, a multiple of 16.
        width: of the input and of each layer.
        layers: how many.
    """
    trial = Trial("eight-bit-chain", rows=rows, width=width, layers=layers)
    _warm_up()

    def chain(recipe: Recipe) -> Callable[[torch.Tensor], torch.Tensor]:
        modules: list[nn.Module] = []
        for _ in range(layers):
            modules += [linear(width, width, recipe), nn.GELU()]
        return nn.Sequential(*modules).to("cuda")

    for recipe in RECIPES:
        predicted_bytes = gelu_chain_bytes(rows, width, layers, recipe)
        _forward(trial, recipe, (rows, width), chain(recipe), predicted_bytes)
    return trial.outcome()


@experiment(
    "eight-bit-readers",
    lesson="28",
    question="What do three layers keep that read the same input?",
    source="arXiv 2209.05433",
    conditions=HOPPER,
)
def eight_bit_readers(rows: int = 8192, width: int = 1024, readers: int = 3) -> Outcome:
    """Measure what Linear layers keep that read one input, as those of query, key and value do.

    Args:
        rows: of the input, a multiple of 16.
        width: of the input and of each layer.
        readers: how many layers.
    """
    trial = Trial("eight-bit-readers", rows=rows, width=width, readers=readers)
    _warm_up()

    def side_by_side(recipe: Recipe) -> Callable[[torch.Tensor], torch.Tensor]:
        modules = [linear(width, width, recipe).to("cuda") for _ in range(readers)]

        def read(x: torch.Tensor) -> torch.Tensor:
            return torch.stack([module(x)[:1, :1] for module in modules])  # no output stays

        return read

    for recipe in RECIPES:
        predicted_bytes = linear_kept_bytes(rows, width, width, recipe, readers)
        _forward(trial, recipe, (rows, width), side_by_side(recipe), predicted_bytes)
    return trial.outcome()


def _forward(
    trial: Trial,
    recipe: Recipe,
    shape: tuple[int, int],
    model: Callable[[torch.Tensor], torch.Tensor],
    predicted_bytes: int,
) -> None:
    """Run a forward pass whose input is let go: besides the loss, what is left the graph keeps.

    The input is another layer's output, so that the weights are needed for its gradient.
    """
    torch.cuda.empty_cache()
    seed = torch.zeros(1, 1, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    with trial.stage(recipe, expected("growth", predicted_bytes + SCALAR_BYTES)):
        x = seed.expand(shape).contiguous()
        with region(recipe):
            loss = model(x).sum()
        del x
    del loss


@experiment(
    "eight-bit-formats",
    lesson="28",
    question="Which numbers does a byte hold, and half a byte?",
    source="arXiv 2209.05433, arXiv 2310.10537",
    figures=("fp8-e4m3", "fp8-e5m2", "mx-formats"),
    conditions=HOPPER,
)
def eight_bit_formats() -> Outcome:
    """Read every pattern of a byte as PyTorch does, and cast a matrix in blocks."""
    trial = Trial("eight-bit-formats")
    patterns = torch.arange(256, dtype=torch.uint8)
    for name, dtype, fraction_bits in (("fp8-e4m3", E4M3, 3), ("fp8-e5m2", E5M2, 2)):
        numbers = patterns.view(dtype).float()
        finite = numbers[numbers.isfinite()]
        values: tuple[tuple[str, float], ...] = (
            ("largest", float(finite.max())),
            ("smallest normal", float(numbers[1 << fraction_bits])),  # exponent 1, fraction 0
            ("smallest", float(numbers[1])),
            ("patterns for nan", int(numbers.isnan().sum())),
            ("patterns for infinity", int(numbers.isinf().sum())),
        )
        for index, (part, value) in enumerate(values):
            trial.find(name, value, index=index, part=part)
    matrix = torch.ones(128, 256, device="cuda")
    casts, scales = cast_blocks(matrix)
    halves = torch.empty(128, 128, dtype=torch.float4_e2m1fn_x2, device="cuda")
    assert matrix.numel() // scales.numel() == BLOCK
    parts: tuple[tuple[str, float | None], ...] = (
        ("numbers in a block", matrix.numel() // scales.numel()),
        ("bits of a scale", 8 * scales.element_size()),
        ("bits of a number, MXFP8", 8 * casts.nbytes / matrix.numel()),
        ("bits of a number, MXFP6", None),
        ("bits of a number, MXFP4", 8 * halves.nbytes / matrix.numel()),
    )
    for index, (part, bits) in enumerate(parts):
        trial.find(
            "mx-formats",
            bits,
            index=index,
            part=part,
            quoted=bits is None,
            note="PyTorch has no dtype of 6 bits" if bits is None else "",
        )
    return trial.outcome()


@experiment(
    "llama-8b-eight-bits",
    lesson="28",
    question="What did 8-bit products save in a training of Llama 3 8B?",
    source="pytorch/torchtitan 7a04053",
    figures=("llama-8b-eight-bits",),
    conditions=HOPPER,
)
def llama_8b_eight_bits() -> Outcome:
    """Quote what torchtitan printed; the lesson explains the differences."""
    trial = Trial("llama-8b-eight-bits")
    for index, part in enumerate(figure("llama-8b-eight-bits").what.split(": ")[1].split(", ")):
        trial.find(
            "llama-8b-eight-bits",
            None,
            index=index,
            part=part,
            quoted=True,
            note="printed for 8 GPUs with torch.compile, which fuses what stays here",
        )
    return trial.outcome()
