"""Explore what a training step of BERT holds, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch

from vramlab import VirtualGPU
from vramlab.measure import StageMeasurement, Stages, Table
from vramlab.units import format_mib, short_size
from vramlab_course.formulas.bert import PARTS, Bert
from vramlab_course.lessons.l09_bert_in_training.experiment import IMPLEMENTATIONS
from vramlab_course.lessons.l09_bert_in_training.parts import kept_by_group
from vramlab_course.plots import draw_stacks
from vramlab_course.rules import RULES
from vramlab_course.widgets.controls import choice, powers, slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import AnyGPU

HEAD_SIZE = 64
"""Width of an attention head, as in BERT; a model has as many heads as fit into its width."""

MODES = {"eval()": False, "train()": True}


@dataclass(frozen=True)
class BertStep:
    """What was measured of one training step."""

    parameters: StageMeasurement
    forward: StageMeasurement
    step: StageMeasurement
    """Forward and backward pass, without an optimizer."""


@explorer("What a training step of BERT holds")
def bert_explorer(
    batch: Annotated[int, powers("Batch", 1, 256), "sequences"] = 32,
    length: Annotated[int, powers("Length in tokens", 64, 4096)] = 512,
    layers: Annotated[int, slider("Layers", 1, 24), "of the encoder"] = 12,
    width: Annotated[int, slider("Width", HEAD_SIZE, 1536, HEAD_SIZE), "a multiple of 64"] = 768,
    mode: Annotated[str, choice("Mode", MODES)] = "train()",
    attention: Annotated[str, choice("Attention", IMPLEMENTATIONS)] = "eager",
    gpu: AnyGPU = "A100-40GB",
) -> View:
    """Show what a BERT keeps for the backward pass, and what a step peaks at.

    Attention is transformers' attn_implementation; feed-forward layers are four times as wide as
    the others. A forward pass and a step are measured; the parts are computed.
    """
    sizes = Bert(
        positions=max(length, 512),
        width=width,
        layers=layers,
        heads=width // HEAD_SIZE,
        feed_forward=4 * width,
    )
    train = MODES[mode]
    kept = sizes.kept(batch, length, train=train, attention=IMPLEMENTATIONS[attention])
    rows: dict[str, dict[str, int]] = {}
    for tensor in kept:
        row = rows.setdefault(tensor.place, dict.fromkeys(PARTS, 0))
        row[tensor.part] += tensor.size_bytes
    alike = f"layers 1 to {layers}, each" if layers > 1 else "layer 1"
    groups = kept_by_group(
        batch, length, train=train, attention=IMPLEMENTATIONS[attention], sizes=sizes
    )
    shown = {
        "embeddings": groups["embeddings"],
        alike: groups["layer 0"],
        "pooler": groups["pooler"],
    }
    with VirtualGPU(gpu, torch_version=RULES):
        step = measure_bert(sizes, batch, length, train, attention)
    peak_bytes = step.step.peak_allocated_bytes
    summary = (
        f"{short_size(step.parameters.growth_bytes)} of parameters; the forward pass keeps "
        f"{short_size(step.forward.growth_bytes)}; a step without optimizer peaks at "
        f"{short_size(peak_bytes)}."
    )
    title = f"{layers} layers of {width}, batch {batch} x {length}, {mode}, {attention}"
    return View(
        summary,
        draw_stacks(shown, title=title, of="activations"),
        (_by_part(rows, step.forward.growth_bytes),),
    )


def measure_bert(
    sizes: Bert, batch: int, length: int, train: bool, implementation: str
) -> BertStep:
    """Run a forward pass, then a step, on the current GPU; workspaces come before."""
    from transformers import BertConfig, BertModel

    config = BertConfig.from_dict(
        {
            "attn_implementation": implementation,
            "vocab_size": sizes.vocabulary,
            "max_position_embeddings": sizes.positions,
            "hidden_size": sizes.width,
            "num_hidden_layers": sizes.layers,
            "num_attention_heads": sizes.heads,
            "intermediate_size": sizes.feed_forward,
        }
    )
    stages = Stages("bert")
    with stages.stage("parameters") as parameters, torch.device("cuda"):
        model = BertModel(config).train(train)
    model(torch.zeros((1, 8), dtype=torch.long, device="cuda")).last_hidden_state.sum().backward()
    model.zero_grad()
    torch.cuda.empty_cache()
    tokens = torch.zeros((batch, length), dtype=torch.long, device="cuda")
    with stages.stage("forward") as forward:
        outputs = model(tokens)
    del outputs
    with stages.stage("step") as step:
        model(tokens).last_hidden_state.sum().backward()
    return BertStep(parameters.measurement, forward.measurement, step.measurement)


def _by_part(rows: Mapping[str, Mapping[str, int]], measured_bytes: int) -> Table:
    sums = {part: sum(row[part] for row in rows.values()) for part in PARTS}
    total_bytes = sum(sums.values())
    lines = [
        (part, format_mib(size_bytes), f"{size_bytes / total_bytes:.1%}")
        for part, size_bytes in sums.items()
        if size_bytes
    ]
    return Table(
        caption="What the forward pass keeps, by part, in all layers",
        header=("part", "size", "share"),
        rows=(
            *lines,
            ("predicted in all", format_mib(total_bytes), ""),
            ("measured", format_mib(measured_bytes), ""),
        ),
        notes=(
            "Where measured is a little more than predicted, blocks hold unsplit remainders of up "
            "to 1 MiB.",
        ),
    )
