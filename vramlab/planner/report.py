"""A plan in words, as a table and as a picture: estimated, and simulated if it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vramlab.planner.advice import Change, next_changes
from vramlab.planner.estimate import Estimate, estimate
from vramlab.planner.events import CATEGORIES, REMAINDERS
from vramlab.planner.plan import Plan
from vramlab.planner.simulation import Simulation
from vramlab.programs.divisions import ZERO_STAGES as STAGES
from vramlab.table import Table
from vramlab.units import format_bytes, format_mib, signed_bytes

_REST = "activations and temporaries"
_OWN = ("parameters", "optimizer states", "inputs", REMAINDERS)
"""Categories that a simulation tells apart, too."""


@dataclass(frozen=True)
class Report:
    """What a plan comes to."""

    estimate: Estimate
    """Of the rank that holds most."""
    simulation: Simulation | None = None
    """Of a rank of the same stage."""

    @property
    def plan(self) -> Plan:
        """What was planned."""
        return self.estimate.plan

    @property
    def fits(self) -> bool:
        """By simulation if there was one, else by the estimate."""
        if self.simulation is not None:
            return self.simulation.fits
        return self.estimate.fits

    def verdict(self) -> str:
        """Tell whether it fits, in a sentence."""
        if self.simulation is not None and not self.simulation.fits:
            return f"It does not fit. {self.simulation.problem}"
        peak_bytes, has_bytes = self.estimate.peak_bytes, self.estimate.available_bytes
        has = f"{self.plan.model.name} has {format_bytes(has_bytes)} beside its CUDA context"
        if self.simulation is not None:
            needed_bytes = self.simulation.reserved_bytes
            return (
                f"It fits: {format_bytes(needed_bytes)} were reserved at most; {has} "
                f"({needed_bytes / has_bytes:.0%})."
            )
        share = peak_bytes / has_bytes
        if peak_bytes > has_bytes:
            return f"It does not fit: {has}, {format_bytes(peak_bytes - has_bytes)} too little."
        if not self.fits:
            return (
                f"It does not fit, at {share:.0%}: {has}, but the allocator finds no free block "
                "that is large enough."
            )
        return f"It fits, at {share:.0%}: {has}."

    def value_reads(self) -> str:
        """List the values that a custom model has read and that do not exist; '' if it read none.

        What it does with them, and so the memory that it takes, may be otherwise with true ones.
        """
        if not self.estimate.value_reads:
            return ""
        told = "The model read values, which do not exist; nan or 0 was answered:"
        return "\n".join([told, *(f"  {line} ({how})" for how, line in self.estimate.value_reads)])

    def table(self) -> Table:
        """Give the peak by category; estimated, and simulated if it was and fitted."""
        if self.simulation is not None and self.simulation.fits:
            return self._comparison(self.simulation)
        found = self.estimate.bytes_by_category
        rows = [
            (name, format_mib(size), f"{size / self.estimate.peak_bytes:.1%}")
            for name in (*CATEGORIES, REMAINDERS)
            if (size := found.get(name, 0))
        ]
        rows.append(("peak", format_mib(self.estimate.peak_bytes), "100.0%"))
        notes = (f"A training step was {self.estimate.how}.",) if self.estimate.how else ()
        return Table(self._caption(), ("bytes of", "estimated", "share"), tuple(rows), notes)

    def _comparison(self, simulation: Simulation) -> Table:
        found, simulated = self.estimate.bytes_by_category, simulation.bytes_by_category
        both = [(name, found.get(name, 0), simulated.get(name, 0)) for name in _OWN]
        rest = (
            _REST,
            self.estimate.peak_bytes - sum(size for _, size, _ in both),
            simulation.peak_bytes - sum(size for _, _, size in both),
        )
        both.insert(-1, rest)
        both.append(("peak", self.estimate.peak_bytes, simulation.peak_bytes))
        return Table(
            self._caption(),
            ("bytes of", "estimated", "simulated", "difference"),
            tuple(
                (name, format_mib(formula), format_mib(measured), signed_bytes(measured - formula))
                for name, formula, measured in both
            ),
            notes=(
                *_engine(simulation),
                f"Reserved at most: {format_bytes(simulation.reserved_bytes)}.",
                f'"{_REST}" include gradients, workspaces, and what is gathered and sent.',
            ),
        )

    def _caption(self) -> str:
        stage = f" in stage {self.estimate.stage}" if self.plan.pipeline > 1 else ""
        return f"One GPU{stage} at its peak ({self.estimate.peak.name})"

    def next_changes(self) -> list[Change]:
        """Give what would lower the peak, the best first."""
        return next_changes(self.plan)

    def changes(self, count: int = 6) -> Table:
        """Give the first of them."""
        changes = self.next_changes()[:count]
        return Table(
            "What would lower the peak, one change at a time",
            ("change", "peak then", "less by", "price"),
            tuple(map(self._change, changes)),
            ('"About" is a closed form; what has none was run.',)
            if any(not change.exact for change in changes)
            else (),
        )

    def _change(self, change: Change) -> tuple[str, str, str, str]:
        less = self.estimate.peak_bytes - change.peak_bytes
        about = "" if change.exact else "about "
        return (
            change.what,
            f"{about}{format_bytes(change.peak_bytes)}, {change.fitting}",
            f"{about}{format_bytes(less)}",
            change.price,
        )


def _engine(simulation: Simulation) -> tuple[str, ...]:
    if not simulation.native_torch:
        return ()
    return (f"Simulated on the native engine: PyTorch {simulation.native_torch}.",)


def report(
    plan: Plan,
    *,
    simulated: bool = False,
    simulate: Callable[[Plan, int], Simulation] | None = None,
) -> Report:
    """Estimate a plan, and simulate it if asked to, which takes seconds to minutes.

    Args:
        plan: what is asked about.
        simulated: whether to simulate it.
        simulate: what to do so with, from a plan and a stage; None: a virtual GPU.
    """
    found = estimate(plan)
    if not simulated:
        return Report(found)
    from vramlab.planner.simulator import simulate as simulate_virtually

    return Report(found, (simulate or simulate_virtually)(plan, found.stage))


def describe(plan: Plan) -> str:
    """Give a plan in one sentence."""
    parts = [
        *_model_and_batch(plan),
        plan.precision,
        f"{plan.optimizer} ({plan.implementation})",
    ]
    if not plan.is_custom:
        parts.append(f"{plan.attention} attention")
    if plan.checkpointing != "none":
        parts.append(f"{plan.checkpointing} checkpointing")
    if plan.micro_batches > 1:
        parts.append(f"{plan.micro_batches} micro-batches of {plan.at_a_time}")
    if plan.offload != "nothing":
        parts.append(f"{_OFFLOADED[plan.offload]} on the host")
    return f"{', '.join(parts)}, on {_gpus(plan)}"


def _model_and_batch(plan: Plan) -> list[str]:
    if not plan.is_custom:
        billions = plan.transformer.parameters() / 1e9
        return [f"{billions:,.2f} billion parameters", f"{plan.batch} x {plan.sequence} tokens"]
    from vramlab.planner.custom_training import count_parameters

    custom = plan.custom
    shapes = (each.shape(plan.batch, plan.sequence) for each in custom.inputs)
    inputs = ", ".join(" x ".join(map(str, shape)) for shape in shapes)
    return [custom.name, f"{count_parameters(custom) / 1e9:,.3f} billion parameters", inputs]


_OFFLOADED = {
    "optimizer": "optimizer",
    "activations": "activations",
    "both": "optimizer and activations",
}


def _gpus(plan: Plan) -> str:
    if plan.ranks == 1:
        return f"one {plan.model.name}"
    ways: list[str] = []
    if plan.data > 1:
        ways.append(f"{plan.data} data-parallel ({STAGES[plan.zero]})")
    if plan.tensor > 1:
        with_sequence = " with the sequence" if plan.sequence_parallel else ""
        ways.append(f"{plan.tensor} tensor-parallel{with_sequence}")
    if plan.pipeline > 1:
        ways.append(f"{plan.pipeline} stages ({plan.schedule})")
    return f"{plan.ranks} x {plan.model.name}: {' x '.join(ways)}"
