"""Explore what LoRA and QLoRA leave of a step's memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from vramlab import catalogue
from vramlab.measure import Table
from vramlab.units import format_mib, short_size
from vramlab_course.lessons.l24_lora_and_qlora.experiment import (
    ALL_MATRICES,
    LLAMA_7B,
    TuningWay,
    step_peak,
)
from vramlab_course.plots import draw_stacks
from vramlab_course.widgets.controls import checkbox, choice, powers, slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import AnyGPU

LEARNS = {
    "all weights": (),
    "adapters beside all matrices": ALL_MATRICES,
    "adapters beside query, key, value": ("qkv",),
}


@explorer("What adapters leave of a step")
def adapter_explorer(
    learns: Annotated[str, choice("Learning", LEARNS), "what learns"] = list(LEARNS)[1],
    four_bits: Annotated[bool, checkbox("Frozen weights in 4 bits")] = True,
    checkpointing: Annotated[bool, checkbox("Layers recomputed")] = False,
    rank: Annotated[int, powers("Rank", 1, 256)] = 16,
    length: Annotated[int, powers("Length", 256, 8192), "tokens of the one text"] = 2048,
    layers: Annotated[int, slider("Layers", 2, 32), "of LLaMA 7B's size"] = 32,
    gpu: AnyGPU = "RTX-4090",
) -> View:
    """Show the peak of a step, by what learns and how frozen weights are kept.

    What all weights take is drawn beside it.
    """
    way = TuningWay(
        LEARNS[learns],
        four_bits=four_bits and learns != "all weights",
        rank=rank,
        checkpointing="full" if checkpointing else "none",
    )
    sizes = replace(LLAMA_7B, layers=layers)
    ways = {"all weights learn": TuningWay(), learns: way}
    rows = {name: step_peak(each, sizes, length) for name, each in ways.items()}
    peaks = {name: sum(parts.values()) for name, parts in rows.items()}
    capacity_bytes = catalogue.find(gpu).total_bytes
    fits = "fits" if peaks[learns] <= capacity_bytes else "does not fit"
    return View(
        f"The peak is {short_size(peaks[learns])} instead of "
        f"{short_size(peaks['all weights learn'])}, and {fits} on one {gpu}.",
        draw_stacks(
            rows,
            title=f"Peak of a step, {layers} layers, {length:,} tokens",
            capacity_bytes=capacity_bytes,
        ),
        (_table(rows),),
    )


def _table(rows: dict[str, dict[str, int]]) -> Table:
    categories = dict.fromkeys(name for parts in rows.values() for name in parts)
    return Table(
        "At the peak",
        ("bytes of", *rows),
        tuple(
            (name, *(format_mib(parts.get(name, 0)) for parts in rows.values()))
            for name in categories
        ),
    )
