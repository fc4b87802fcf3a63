"""What a plan costs beside its memory, and plans next to each other.

Memory is what `vramlab.planner` answers. Its price is counted here while PyTorch's own code runs
one rank alone on a virtual GPU: FLOPs in matrix products, and bytes that are sent to other GPUs, or
travel between the GPU and its host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from vramlab.cuda_rules.collectives import interconnects_of, link_seconds
from vramlab.cuda_rules.durations import compute_seconds, copy_seconds
from vramlab.gpu import VirtualGPU
from vramlab.measure.collectives import record_collectives
from vramlab.measure.flops import count_flops
from vramlab.measure.p2p_sends import record_sends
from vramlab.measure.transfers import record_transfers
from vramlab.planner import Plan, Simulation, estimate
from vramlab.planner.program import Training, first_rank_of
from vramlab.table import Table
from vramlab.units import GIB, format_bytes

Plans = Mapping[str, Plan]
"""By what a learner would call them."""

LAYERS_COUNTED = 1
"""Of each stage, and one more: the difference is a layer's."""

ROOM_BYTES = 2**40
"""Of the GPU on which prices are counted: what a plan costs does not depend on whether it fits."""


@dataclass(frozen=True)
class Price:
    """What one GPU does in a step."""

    flops: int
    """In matrix products, as torch's FlopCounterMode counts them."""
    sent_bytes: int
    """To other GPUs; collectives go around a ring."""
    host_bytes: int = 0
    """To the host and back, both ways together."""

    def least_seconds(self, plan: Plan) -> tuple[float, float]:
        """Return the times for the FLOPs, and for what is sent, by the catalogue's peak figures.

        Sent by the fastest way between two GPUs of one machine.
        """
        gpu = plan.model
        arithmetic = plan.run.dtypes.compute
        fastest = interconnects_of(gpu)[0]
        return (
            compute_seconds(self.flops, gpu, arithmetic),  # type: ignore[arg-type]
            link_seconds(self.sent_bytes, gpu, fastest),
        )

    def step_seconds(self, plan: Plan) -> float:
        """Return the least time of a step, where computing, sending and copying happen at once.

        What goes to the host waits there to come back, so its two ways follow each other.
        """
        return max(*self.least_seconds(plan), copy_seconds(self.host_bytes, plan.model))


def measure_price(plan: Plan, stage: int = 0) -> Price:
    """Count a step of the first rank of a stage.

    Counted with one and with two layers in each stage; since layers are alike, the others add as
    much each.

    Args:
        plan: whose layers come out even over the stages.
        stage: of the pipeline.

    Raises:
        ValueError: stages differ in length; ZeRO-1 deals out whole parameters, so that ranks send
            different amounts; or matrices are cut, which FlopCounterMode counts as whole ones.
    """
    each, rest = divmod(plan.transformer.layers, plan.pipeline)
    if rest:
        raise ValueError(
            f"{plan.transformer.layers} layers in {plan.pipeline} stages: stages have to be alike"
        )
    if plan.zero == 1:
        raise ValueError("with ZeRO-1 each rank sends the parameters that it has updated")
    if plan.tensor > 1:
        raise ValueError(
            "FLOPs of tensor-parallel ranks cannot be counted: FlopCounterMode sees whole matrices"
        )
    few, more = (_count(plan, layers, stage) for layers in (LAYERS_COUNTED, LAYERS_COUNTED + 1))
    others = each - LAYERS_COUNTED
    return Price(
        few.flops + others * (more.flops - few.flops),
        few.sent_bytes + others * (more.sent_bytes - few.sent_bytes),
        few.host_bytes + others * (more.host_bytes - few.host_bytes),
    )


@lru_cache(maxsize=256)
def _count(plan: Plan, layers: int, stage: int) -> Price:
    """Of a step of the same plan for a shorter model, once all has settled."""
    shorter = plan.but(sizes=replace(plan.transformer, layers=layers * plan.pipeline))
    roomy = replace(plan.model, total_bytes=ROOM_BYTES)
    with VirtualGPU(roomy), first_rank_of(shorter, stage) as mesh:
        training = Training(shorter, mesh)
        for _ in range(_steps_to_settle(plan)):
            training.step()
        with (
            record_collectives() as collectives,
            record_sends() as sends,
            record_transfers() as transfers,
            count_flops() as counter,
        ):
            training.step()
        del training
    return Price(
        counter.get_total_flops(),
        collectives.sent_bytes + sends.sent_bytes,
        transfers.to_host_bytes + transfers.to_gpu_bytes,
    )


def _steps_to_settle(plan: Plan) -> int:
    """Pipelines open connections in their first step, and DDP arranges its buckets in the second.

    Source: `_rebuild_buckets` in torch/nn/parallel/distributed.py, PyTorch 2.13.
    """
    if plan.data > 1 and plan.zero < 2:
        return 2
    return 1 if plan.pipeline > 1 else 0


def ladder_table(plans: Plans, caption: str) -> Table:
    """Compare plans by their peaks: what lasts, what a batch adds, and what the GPU has."""
    rows = []
    for name, plan in plans.items():
        found = estimate(plan)
        lasting = ("parameters", "optimizer states", "gradients")
        lasting_bytes = sum(found.bytes_by_category[category] for category in lasting)
        rows.append(
            (
                name,
                _gib(lasting_bytes),
                _gib(found.peak_bytes - lasting_bytes),
                _gib(found.peak_bytes),
                f"{found.peak_bytes / found.available_bytes:.0%}",
            )
        )
    header = ("", "parameters, gradients, states", "all else", "peak", "of what the GPU has")
    return Table(caption, header, tuple(rows), notes=("In GiB, of the GPU that holds most.",))


def compared_table(plans: Plans, simulations: Mapping[str, Simulation], caption: str) -> Table:
    """Go from the extended peak to what is reserved, each plan from the left to the right."""
    rows = []
    for name, plan in plans.items():
        simulation = simulations[name]
        predicted = estimate(plan).peak.blocks_bytes
        rows.append(
            (
                name,
                _gib(predicted),
                _gib(simulation.blocks_bytes) if simulation.fits else "-",
                f"{simulation.blocks_bytes - predicted:+,} B" if simulation.fits else "-",
                _gib(simulation.allocated_bytes),
                _gib(simulation.reserved_bytes),
                "yes" if simulation.fits else "no",
            )
        )
    header = ("", "extended", "blocks", "difference", "allocated", "reserved", "fits")
    return Table(caption, header, tuple(rows), notes=("Peaks in GiB.",))


def price_table(plans: Plans, caption: str) -> Table:
    """Return memory beside its price."""
    rows = []
    for name, plan in plans.items():
        price = measure_price(plan)
        computing, sending = price.least_seconds(plan)
        rows.append(
            (
                name,
                _gib(estimate(plan).peak_bytes),
                f"{price.flops / 1e12:,.0f}",
                f"{computing:.2f} s",
                format_bytes(price.sent_bytes),
                f"{sending:.2f} s",
            )
        )
    header = ("", "peak, GiB", "TFLOP", "takes at least", "sent", "takes at least")
    return Table(caption, header, tuple(rows))


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:,.2f}"
