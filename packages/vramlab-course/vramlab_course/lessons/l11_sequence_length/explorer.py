"""Explore what attention takes over the length of a text, by how it is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import torch

from vramlab import VirtualGPU
from vramlab.measure import Table
from vramlab.units import format_mib, short_size
from vramlab_course.lessons.l11_sequence_length.attention_formulas import KINDS, AttentionKind
from vramlab_course.lessons.l11_sequence_length.sequence_length_experiment import (
    AttentionMemory,
    can_run,
    measure_attention,
)
from vramlab_course.plots import draw_curves
from vramlab_course.widgets.controls import choice, powers, slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import AnyGPU
from vramlab_course.widgets.parameters_explorer import DTYPES

MODES = ("training with dropout", "training without dropout", "no_grad")
DROPOUT = 0.1

_HALVINGS = 4


@explorer("What attention takes, by length")
def attention_explorer(
    length: Annotated[int, powers("Length", 256, 65536), "tokens of the longest text"] = 2048,
    kind: Annotated[AttentionKind, choice("Attention", KINDS)] = "step by step",
    batch: Annotated[int, powers("Batch", 1, 256), "texts at a time"] = 1,
    heads: Annotated[int, slider("Heads", 1, 64)] = 12,
    head_size: Annotated[int, powers("Head size", 16, 128), "numbers of each head"] = 64,
    dtype: Annotated[str, choice("Numbers", DTYPES)] = "float16",
    mode: Annotated[str, choice("Mode", MODES)] = "training without dropout",
    gpu: AnyGPU = "A100-40GB",
) -> View:
    """Show what one attention keeps, and what it takes at most, up to a length.

    The length is halved four times for shorter texts.
    """
    training = mode != MODES[2]
    dropout = DROPOUT if mode == MODES[0] else 0.0
    measured: dict[int, AttentionMemory] = {}
    with VirtualGPU(gpu):
        if not can_run(kind, DTYPES[dtype], training, dropout):
            major, minor = torch.cuda.get_device_capability()
            raise ValueError(
                f"{gpu}, of compute capability {major}.{minor}, has no kernel of {kind} attention "
                f"for {dtype}, {mode}. Flash attention and cuDNN's want 16-bit numbers and a "
                "capability of 8.0 or more; cuDNN's takes no dropout of 0.1; the memory-efficient "
                "one takes bfloat16 from 8.0 on."
            )
        for halvings in reversed(range(_HALVINGS + 1)):
            measured[length >> halvings] = measure_attention(
                kind,
                length >> halvings,
                batch=batch,
                heads=heads,
                head_size=head_size,
                dtype=DTYPES[dtype],
                dropout=dropout,
                training=training,
            )
    return View(
        _summary(measured, kind),
        draw_curves(
            _curves(measured, training),
            title=f"{kind} attention, {batch} x {heads} heads of {head_size}, {dtype}, {mode}",
            x_label="length in tokens",
            logarithmic=True,
        ),
        (_table(measured, training),),
    )


def _summary(measured: Mapping[int, AttentionMemory], kind: str) -> str:
    half, whole = list(measured)[-2:]
    times = measured[whole].kept_bytes / measured[half].kept_bytes
    return (
        f"At {whole:,} tokens, {kind} attention keeps {short_size(measured[whole].kept_bytes)}, "
        f"{times:.2f} times as much as at {half:,}."
    )


def _curves(
    measured: Mapping[int, AttentionMemory], training: bool
) -> dict[str, list[tuple[float, float]]]:
    curves: dict[str, list[tuple[float, float]]] = {
        "stays after forward": [(n, memory.kept_bytes) for n, memory in measured.items()],
        "most in forward": [(n, memory.forward_peak_bytes) for n, memory in measured.items()],
    }
    if training:
        curves["most in backward"] = [(n, m.backward_peak_bytes) for n, m in measured.items()]
    return curves


def _table(measured: Mapping[int, AttentionMemory], training: bool) -> Table:
    return Table(
        "Beyond query, key and value",
        ("tokens", "stays after forward", "most in forward", "most in backward"),
        tuple(
            (
                f"{length:,}",
                format_mib(memory.kept_bytes),
                format_mib(memory.forward_peak_bytes),
                format_mib(memory.backward_peak_bytes) if training else "",
            )
            for length, memory in measured.items()
        ),
    )
