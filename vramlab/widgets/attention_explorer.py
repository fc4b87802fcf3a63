"""Explore what attention takes over the length of a text, by how it is computed."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from vramlab import VirtualGPU, catalogue
from vramlab.experiments.sequence_length import AttentionMemory, can_run, measure_attention
from vramlab.formulas.attention import KINDS, AttentionKind
from vramlab.measure import Table
from vramlab.plots import draw_curves
from vramlab.units import format_mib, short_size
from vramlab.widgets.explorer import Explorer, View, choice, power_slider, slider

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
MODES = ("training with dropout", "training without dropout", "no_grad")
DROPOUT = 0.1

_BY_NAME: Mapping[str, AttentionKind] = {kind: kind for kind in KINDS}
_HALVINGS = 4


def attention_explorer(
    length: int = 2048,
    kind: AttentionKind = "step by step",
    batch: int = 1,
    heads: int = 12,
    head_size: int = 64,
    dtype: str = "float16",
    mode: str = "training without dropout",
    gpu: str = "A100-40GB",
) -> Explorer:
    """Show what one attention keeps, and what it takes at most, up to a length.

    Every change runs on a fresh virtual GPU; whatever is attached in the notebook is left alone.

    Args:
        length: tokens of the longest text; it is halved four times for the shorter ones.
        kind: how attention is computed.
        batch: texts at a time.
        heads: of the attention.
        head_size: numbers of each head.
        dtype: one of `DTYPES`.
        mode: one of `MODES`.
        gpu: a GPU of the catalogue.
    """
    controls = {
        "length": power_slider("Length", length, 256, 65536),
        "kind": choice("Attention", KINDS, kind),
        "batch": power_slider("Batch", batch, 1, 256),
        "heads": slider("Heads", heads, 1, 64),
        "head_size": power_slider("Head size", head_size, 16, 128),
        "dtype": choice("Numbers", tuple(DTYPES), dtype),
        "mode": choice("Mode", MODES, mode),
        "gpu": choice("GPU", catalogue.names(), gpu),
    }
    return Explorer("What attention takes, by length", controls, show_attention)


def show_attention(
    length: int,
    kind: str,
    batch: int,
    heads: int,
    head_size: int,
    dtype: str,
    mode: str,
    gpu: str,
) -> View:
    """Run attention at five lengths on a fresh virtual GPU.

    Raises:
        ValueError: the GPU has no kernel of that kind for these numbers.
    """
    chosen = _BY_NAME[kind]
    training = mode != MODES[2]
    dropout = DROPOUT if mode == MODES[0] else 0.0
    measured: dict[int, AttentionMemory] = {}
    with VirtualGPU(gpu):
        if not can_run(chosen, DTYPES[dtype], training, dropout):
            major, minor = torch.cuda.get_device_capability()
            raise ValueError(
                f"{gpu}, of compute capability {major}.{minor}, has no kernel of {kind} attention "
                f"for {dtype}, {mode}. Flash attention and cuDNN's want 16-bit numbers and a "
                "capability of 8.0 or more; cuDNN's takes no dropout of 0.1; the memory-efficient "
                "one takes bfloat16 from 8.0 on."
            )
        for halvings in reversed(range(_HALVINGS + 1)):
            measured[length >> halvings] = measure_attention(
                chosen,
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
