"""Explore what each rank holds and sends when a transformer layer is cut."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from vramlab import VirtualGPU, catalogue
from vramlab.cuda_rules.collectives import interconnects_of, link_seconds
from vramlab.cuda_rules.durations import compute_seconds
from vramlab.measure import Table
from vramlab.units import format_mib, short_size
from vramlab_course.lessons.l21_tensor_parallel.experiment import LayerReading, read_layer
from vramlab_course.lessons.l21_tensor_parallel.formulas import (
    Division,
    kept_parts,
    layer_flops,
    paper_kept_bytes,
    parameters_bytes,
)
from vramlab_course.plots import draw_stacks
from vramlab_course.plots.durations import short_time
from vramlab_course.widgets.controls import checkbox, powers
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import TensorCoreGPU, roomy

HEAD_SIZE = 64


@explorer("One layer on many GPUs", first=("gpu",))
def tensor_parallel_explorer(
    width: Annotated[int, powers("Width", 1024, 16384), "of the layer; its heads are of 64"] = 4096,
    batch: Annotated[int, powers("Sequences", 1, 16), "sequences in a step"] = 2,
    sequence: Annotated[int, powers("Tokens of each", 256, 8192), "tokens of a sequence"] = 2048,
    ranks: Annotated[int, powers("Ranks", 2, 16), "how many share the layer"] = 8,
    cut_sequence: Annotated[bool, checkbox("Cut the sequence, too")] = False,
    gpu: TensorCoreGPU = "A100-80GB",
) -> View:
    """Show one transformer layer in float16 with dropout, cut among ranks.

    The layer is measured on one rank alone, with memory to spare. The parts are those of the closed
    form. Times are lower bounds, at the catalogue's peak rates.
    """
    model = catalogue.find(gpu)
    division: Division = "sequence" if cut_sequence else "tensor"
    sizes = {"batch": batch, "sequence": sequence, "width": width, "heads": width // HEAD_SIZE}
    reading = _read(ranks, division, *sizes.values())
    rows = {
        name: {
            "parameters and gradients": 2 * parameters_bytes(width, parts),
            **kept_parts(**sizes, ranks=parts, division=way),
        }
        for name, parts, way in _ways(ranks)
    }
    sent_bytes = reading.forward.sent_bytes + reading.backward.sent_bytes
    compute_s = compute_seconds(layer_flops(batch, sequence, width, ranks), model, "float16")
    links_s = {link: link_seconds(sent_bytes, model, link) for link in interconnects_of(model)}
    measured_bytes = 2 * reading.parameters_bytes + reading.kept_bytes
    waits = ", ".join(f"{short_time(seconds)} over {link}" for link, seconds in links_s.items())
    summary = (
        f"Each of {ranks} ranks holds {short_size(measured_bytes)} of the layer and sends "
        f"{short_size(sent_bytes)} in a step: {waits} at least, with {short_time(compute_s)} of "
        "arithmetic."
    )
    picture = draw_stacks(rows, title="One layer, on each rank")
    return View(summary, picture, (_table(reading, ranks, division, sizes),))


def _ways(ranks: int) -> tuple[tuple[str, int, Division], ...]:
    return (
        ("one GPU", 1, "whole"),
        (f"tensor parallel, {ranks} ranks", ranks, "tensor"),
        ("the sequence cut, too", ranks, "sequence"),
    )


@cache
def _read(ranks: int, division: Division, *sizes: int) -> LayerReading:
    batch, sequence, width, heads = sizes
    with VirtualGPU(roomy("A100-80GB")):
        return read_layer(ranks, division, batch, sequence, width, heads)


def _table(reading: LayerReading, ranks: int, division: Division, sizes: dict[str, int]) -> Table:
    calls = reading.forward.calls + reading.backward.calls
    kinds = dict.fromkeys(call.kind for call in calls)
    counts = ", ".join(f"{sum(call.kind == kind for call in calls)} {kind}s" for kind in kinds)
    paper_bytes = paper_kept_bytes(**sizes, ranks=ranks, division=division)
    return Table(
        "Measured on one rank, one layer",
        ("what", "bytes"),
        (
            ("parameters", format_mib(reading.parameters_bytes)),
            ("activations", format_mib(reading.kept_bytes)),
            ("activations, by arXiv 2205.05198", format_mib(paper_bytes)),
            ("sent in forward", format_mib(reading.forward.sent_bytes)),
            ("sent in backward", format_mib(reading.backward.sent_bytes)),
        ),
        (f"Collectives: {counts}, each of {short_size(calls[0].whole_bytes)}, around a ring.",),
    )
