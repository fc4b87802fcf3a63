"""Explore where the bytes of a transformer's training step go: predicted, and measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import torch

from vramlab import VirtualGPU, catalogue
from vramlab.measure import Category, Table
from vramlab.planner import Moment, Plan, estimate
from vramlab.planner.estimate import fitting_of
from vramlab.planner.models import llama_sizes
from vramlab.planner.simulator import in_short
from vramlab.programs import transformer_memory
from vramlab.programs.optimizers import OPTIMIZERS
from vramlab.programs.transformer_memory import (
    ATTENTIONS,
    CHECKPOINTINGS,
    PRECISIONS,
    Attention,
    Checkpointing,
    Run,
    Sizes,
)
from vramlab.units import format_mib, short_size
from vramlab_course.lessons.l12_estimating_large_models.transformer_step import (
    StepMeasurement,
    measure_step,
)
from vramlab_course.plots import draw_stacks
from vramlab_course.plots.style import (
    CACHED_LOOK,
    CATEGORY_LOOKS,
    OUTSIDE_LOOK,
    Look,
    tints_of,
)
from vramlab_course.widgets.controls import choice, powers, run_button, slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import AnyGPU

STYLES = ("GPT-2", "Llama")
"""Layers with LayerNorm, GELU, biases and dropout; or with RMSNorm and SwiGLU, without the rest."""
WIDTHS = (128, 256, 512, 768, 1024, 1280, 1600, 2048, 2560, 3200, 4096, 5120, 8192)
VOCABULARIES = (1024, 32000, 50257, 128256)

CATEGORIES = (
    "parameters",
    "optimizer states",
    "gradients",
    "inputs",
    "workspaces",
    "activations",
    "temporaries",
)
"""What one GPU holds, as `vramlab.measure.Category` names it."""

_CONTEXT, _REMAINDERS = "CUDA context", "unsplit remainders"
_SCORES, _ATTENTION, _FEED_FORWARD, _NORMS, _CASTS, _ENDS = (
    "attention scores",
    "attention, the rest",
    "feed-forward",
    "hidden states at norms",
    "casts of weights",
    "embedding, head, loss",
)
_LOOKS: dict[str, Look] = {
    **{name: CATEGORY_LOOKS[Category(name)] for name in CATEGORIES},
    _REMAINDERS: CACHED_LOOK,
    _CONTEXT: OUTSIDE_LOOK,
    **tints_of("activations", (_SCORES, _ATTENTION, _FEED_FORWARD, _NORMS, _CASTS, _ENDS)),
}
"""Categories look as in all pictures; what the forward pass keeps is taken apart in a bar below."""

_TOOLTIP = "Run the model on a fresh virtual GPU; large ones take some seconds"
_SMALL = 0.002
"""Share of what is kept below which terms are not listed one by one."""


@explorer("Where do my bytes go?", height_px=900)
def transformer_explorer(
    batch: Annotated[int, powers("Batch", 1, 256), "texts at a time"] = 8,
    sequence: Annotated[int, powers("Length", 64, 16384), "tokens of each"] = 1024,
    layers: Annotated[int, slider("Layers", 1, 96)] = 12,
    width: Annotated[int, choice("Width", WIDTHS), "of the hidden state"] = 768,
    head_size: Annotated[int, choice("Head size", (32, 64, 128))] = 64,
    vocabulary: Annotated[int, choice("Vocabulary", VOCABULARIES)] = 50257,
    style: Annotated[str, choice("Layers like", STYLES)] = "GPT-2",
    precision: Annotated[str, choice("Precision", PRECISIONS)] = "float32",
    optimizer: Annotated[str, choice("Optimizer", OPTIMIZERS)] = "adamw",
    attention: Annotated[Attention, choice("Attention", ATTENTIONS)] = "eager",
    checkpointing: Annotated[Checkpointing, choice("Checkpointing", CHECKPOINTINGS)] = "none",
    gpu: AnyGPU = "A100-40GB",
    measure: Annotated[bool, run_button("Measure", _TOOLTIP), "whether to run it, too"] = False,
) -> View:
    """Show the peak of a training step, part by part, against a GPU's memory.

    A step with few layers is run and extended to all of them. "Measure" runs all of them, and shows
    both.
    """
    sizes = sizes_of(style, layers, width, head_size, vocabulary, sequence)
    run = Run(
        batch,
        sequence,
        precision,
        optimizer,
        attention=attention,
        dropout=style == "GPT-2",
        checkpointing=checkpointing,
    )
    model = catalogue.find(gpu)
    available_bytes = model.total_bytes - model.context_bytes
    predicted = estimate(Plan.of_run(sizes, run, gpu)).peak
    bars = {
        "predicted": {
            **_in_order(predicted.bytes_by_category),
            _REMAINDERS: predicted.total_bytes - predicted.blocks_bytes,
            _CONTEXT: model.context_bytes,
        }
    }
    measured, failed = _measured(gpu, sizes, run) if measure else (None, "")
    if measured is not None:
        bars["measured"] = {
            **_in_order(measured.bytes_by_category),
            _REMAINDERS: measured.unsplit_remainder_bytes,
            _CONTEXT: model.context_bytes,
        }
    bars["kept by forward"] = _kept_parts(sizes, run)
    picture = draw_stacks(
        bars,
        looks=_LOOKS,
        title=f"A training step has its peak in {predicted.name.replace(': ', ', ')}",
        capacity_bytes=model.total_bytes,
    )
    summary = (
        f"{sizes.parameters() / 1e6:,.1f} million parameters. The peak is "
        f"{short_size(predicted.total_bytes)} as predicted; {gpu} has "
        f"{short_size(available_bytes)} for it: "
        f"{_verdict(predicted.total_bytes, available_bytes)}.{failed}"
    )
    return View(summary, picture, (_categories(predicted, measured), _terms(sizes, run)))


def sizes_of(
    style: str, layers: int, width: int, head_size: int, vocabulary: int, positions: int
) -> Sizes:
    """Return a model's sizes; ValueError if the heads do not divide the width."""
    if width % head_size:
        raise ValueError(
            f"a width of {width} is no multiple of a head size of {head_size}: change one of them"
        )
    if style == "GPT-2":
        return Sizes(vocabulary, positions, width, layers, width // head_size)
    # Two thirds of four times the width, rounded up to a multiple of 256, as in arXiv 2302.13971.
    inner = -(-8 * width // 3 // 256) * 256
    heads = width // head_size
    return llama_sizes(vocabulary, width, layers, heads, inner, positions=positions, rotary=False)


def _measured(gpu: str, sizes: Sizes, run: Run) -> tuple[StepMeasurement | None, str]:
    """Measure the step; None and what torch said if it does not fit."""
    with VirtualGPU(gpu):
        try:
            return measure_step(sizes, run), ""
        except torch.OutOfMemoryError as error:
            said = in_short(error)
    return None, f" Measured: it does not fit. {said}"


def _verdict(peak_bytes: int, available_bytes: int) -> str:
    share, fitting = peak_bytes / available_bytes, fitting_of(peak_bytes, available_bytes)
    if fitting == "does not fit":
        return f"it does not fit, {share:.1f} times as much would be needed"
    if fitting == "may fit":
        return "it fits only if little is lost between blocks; measure it"
    return f"it fits, at {share:.0%}"


def _in_order(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amounts.get(name, 0) for name in CATEGORIES}


def _kept_parts(sizes: Sizes, run: Run) -> dict[str, int]:
    """Divide what the forward pass keeps into a few parts that add up to all of it."""
    parts = dict.fromkeys((_SCORES, _ATTENTION, _FEED_FORWARD, _NORMS, _CASTS), 0)
    if run.checkpointing == "full":
        parts[_NORMS] = sizes.layers * transformer_memory.layer_kept_bytes(sizes, run)
    else:
        for name, size_bytes in transformer_memory.layer_terms(sizes, run).items():
            parts[_part_of(name)] += sizes.layers * size_bytes
    parts[_ENDS] = transformer_memory.kept_bytes(sizes, run) - sum(parts.values())
    return parts


def _part_of(term: str) -> str:
    if "norm: " in term:
        return _NORMS
    if "casts of weights" in term:
        return _CASTS
    if "softmax" in term:
        return _SCORES
    return _ATTENTION if term.startswith("attention") else _FEED_FORWARD


def _categories(predicted: Moment, measured: StepMeasurement | None) -> Table:
    found = measured.bytes_by_category if measured else {}
    rows = []
    for name in CATEGORIES:
        size_bytes = predicted.bytes_by_category[name]
        if not size_bytes and not found.get(name):
            continue
        row = [name, format_mib(size_bytes), f"{size_bytes / predicted.blocks_bytes:.1%}"]
        if measured:
            row += [format_mib(found.get(name, 0)), f"{found.get(name, 0) - size_bytes:+,} B"]
        rows.append(tuple(row))
    total = ["all blocks", format_mib(predicted.blocks_bytes), "100.0%"]
    header = ["bytes of", "predicted", "share"]
    notes: tuple[str, ...] = ()
    if measured:
        header += ["measured", "difference"]
        blocks_bytes = measured.peak_bytes - measured.unsplit_remainder_bytes
        total += [format_mib(blocks_bytes), f"{blocks_bytes - predicted.blocks_bytes:+,} B"]
        notes = (
            f"Besides, {measured.unsplit_remainder_bytes:,} B are unsplit remainders of blocks. "
            f"Reserved at most: {short_size(measured.reserved_bytes)}.",
        )
    return Table(
        caption="The peak by category",
        header=tuple(header),
        rows=(*rows, tuple(total)),
        notes=notes,
    )


def _terms(sizes: Sizes, run: Run) -> Table:
    """List what the forward pass keeps, term by term."""
    terms = dict(transformer_memory.embedding_kept(sizes, run))
    if run.checkpointing == "full":
        terms["inputs of the layers"] = sizes.layers * transformer_memory.layer_kept_bytes(
            sizes, run
        )
    else:
        for name, size_bytes in transformer_memory.layer_terms(sizes, run).items():
            terms[name] = sizes.layers * size_bytes
    terms.update(transformer_memory.head_kept(sizes, run))
    kept_bytes = sum(terms.values())
    large = {name: size for name, size in terms.items() if size >= _SMALL * kept_bytes}
    rest_bytes = kept_bytes - sum(large.values())
    return Table(
        caption=f"What the forward pass keeps, {sizes.layers} layers together",
        header=("term", "size", "share"),
        rows=tuple(
            (name, format_mib(size_bytes), f"{size_bytes / kept_bytes:.1%}")
            for name, size_bytes in {
                **large,
                "smaller terms": rest_bytes,
                "all": kept_bytes,
            }.items()
        ),
    )
