"""Explore what a long text takes, on one GPU or shared among ranks."""

from __future__ import annotations

from typing import Annotated

from vramlab import VirtualGPU, catalogue
from vramlab.measure import Table
from vramlab.units import format_mib, short_size
from vramlab_course.lessons.l25_long_context.experiment import (
    LLAMA_8B,
    ROOMY,
    WAYS,
    measure_loss,
    measure_shared,
)
from vramlab_course.lessons.l25_long_context.formulas import checkpoints_bytes
from vramlab_course.plots import draw_stacks
from vramlab_course.rules import RULES
from vramlab_course.widgets.controls import choice, powers
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import AnyGPU

_STAYS = "activations: layers' inputs"


@explorer("A long text")
def long_context_explorer(
    tokens: Annotated[int, powers("Tokens", 4096, 1048576), "of the one text"] = 131072,
    pieces: Annotated[int, powers("Pieces", 1, 256), "of the loss; 1: as it is written"] = 64,
    ranks: Annotated[int, powers("Ranks", 1, 32), "that share the text"] = 1,
    way: Annotated[str, choice("Attention", WAYS), "how ranks attend"] = "ring",
    gpu: AnyGPU = "A100-80GB",
) -> View:
    """Show the two high moments of a step of Llama 3.1 8B's layers, without weights and states.

    All layers are recomputed. Their inputs stay; on top comes the loss, and later the attention of
    one layer, both measured on one rank.
    """
    part = tokens // ranks
    stays_bytes = checkpoints_bytes(part, LLAMA_8B.width, LLAMA_8B.layers)
    loss_bytes = measure_loss(part, 0 if pieces == 1 else pieces).peak_bytes
    with VirtualGPU(ROOMY, torch_version=RULES):
        shared = measure_shared(way, ranks, tokens)
    rows = {
        "at the loss": {_STAYS: stays_bytes, "temporaries of the loss": loss_bytes},
        "in a layer's attention": {
            _STAYS: stays_bytes,
            "activations: query, key, value": 3 * shared.block_bytes,
            "temporaries of attention": shared.peak_bytes,
        },
    }
    highest = max(rows, key=lambda name: sum(rows[name].values()))
    peak_bytes = sum(rows[highest].values())
    sent_bytes = shared.sent_bytes + shared.sent_backward_bytes
    sent = f" For a layer it sends {short_size(sent_bytes)}." if ranks > 1 else ""
    whole_bytes = catalogue.find(gpu).total_bytes
    return View(
        f"Each rank holds {short_size(peak_bytes)} at most, {highest}; a {gpu} has "
        f"{short_size(whole_bytes)}.{sent}",
        draw_stacks(
            rows,
            title=f"{part:,} of {tokens:,} tokens on a rank",
            capacity_bytes=whole_bytes,
        ),
        (
            Table(
                "On one rank",
                ("moment", "bytes of", "size"),
                tuple(
                    (moment, name, format_mib(size_bytes))
                    for moment, parts in rows.items()
                    for name, size_bytes in parts.items()
                ),
            ),
        ),
    )
