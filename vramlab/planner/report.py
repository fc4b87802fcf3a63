"""The report of a plan, as text and as tables: estimated, and optionally simulated."""

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
"""Categories that estimate and simulation have in common."""


@dataclass(frozen=True)
class Report:
    """The result of a plan."""

    estimate: Estimate
    """Estimate of the rank that uses most memory."""
    simulation: Simulation | None = None
    """Simulation of a rank of the same stage."""

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.estimate.plan

    @property
    def fits(self) -> bool:
        """Whether it fits, according to the simulation if there is one, else to the estimate."""
        if self.simulation is not None:
            return self.simulation.fits
        return self.estimate.fits

    def verdict(self) -> str:
        """Return a sentence that says whether it fits."""
        if self.simulation is not None and not self.simulation.fits:
            return f"It does not fit. {self.simulation.problem}"
        peak_bytes, has_bytes = self.estimate.peak_bytes, self.estimate.available_bytes
        has = (
            f"the {format_bytes(has_bytes)} available on {self.plan.model.name} "
            "(after its CUDA context)"
        )
        if self.simulation is not None:
            reserved_bytes = self.simulation.reserved_bytes
            return (
                f"It fits: peak reserved memory is {format_bytes(reserved_bytes)}, "
                f"{reserved_bytes / has_bytes:.0%} of {has}."
            )
        share = peak_bytes / has_bytes
        if peak_bytes > has_bytes:
            missing = format_bytes(peak_bytes - has_bytes)
            return f"It does not fit: the peak exceeds {has} by {missing}."
        if not self.fits:
            return (
                f"It does not fit: the peak is {share:.0%} of {has}, but memory is fragmented and "
                "no free block is large enough."
            )
        return f"It fits: the peak is {share:.0%} of {has}."

    def value_reads(self) -> str:
        """Return the lines of a custom model that read values from the GPU; '' without any.

        With real values, the model may behave differently and use more or less memory.
        """
        if not self.estimate.value_reads:
            return ""
        heading = "These lines read values that a virtual GPU does not compute (they got nan or 0):"
        reads = (f"  {line} ({how})" for how, line in self.estimate.value_reads)
        return "\n".join([heading, *reads])

    def table(self) -> Table:
        """Return the peak by category: estimated, and simulated if a simulation fitted."""
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
        return Table(self._caption(), ("", "estimated", "fraction"), tuple(rows), notes)

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
            ("", "estimated", "simulated", "difference"),
            tuple(
                (name, format_mib(formula), format_mib(measured), signed_bytes(measured - formula))
                for name, formula, measured in both
            ),
            notes=(
                *_engine(simulation),
                f"Peak reserved memory: {format_bytes(simulation.reserved_bytes)}.",
                f'"{_REST}" include gradients, workspaces and communication buffers.',
            ),
        )

    def _caption(self) -> str:
        stage = f" in stage {self.estimate.stage}" if self.plan.pipeline > 1 else ""
        return f"Memory of one GPU{stage} at the peak ({self.estimate.peak.name})"

    def next_changes(self) -> list[Change]:
        """Return changes that lower the peak, best first."""
        return next_changes(self.plan)

    def changes(self, count: int = 6) -> Table:
        """Return a table of the best changes."""
        changes = self.next_changes()[:count]
        return Table(
            "Changes that lower the peak (one at a time)",
            ("change", "new peak", "saves", "cost"),
            tuple(map(self._change, changes)),
            ('"about": estimated with a formula instead of a run.',)
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
    """Estimate a plan, and optionally simulate it, which takes seconds to minutes.

    Args:
        plan: The plan.
        simulated: Whether to simulate it, too.
        simulate: Simulates a stage of a plan; None uses a virtual GPU.
    """
    found = estimate(plan)
    if not simulated:
        return Report(found)
    from vramlab.planner.simulator import simulate as simulate_virtually

    return Report(found, (simulate or simulate_virtually)(plan, found.stage))


def describe(plan: Plan) -> str:
    """Return a plan as one sentence."""
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
        with_sequence = " with sequence parallelism" if plan.sequence_parallel else ""
        ways.append(f"{plan.tensor} tensor-parallel{with_sequence}")
    if plan.pipeline > 1:
        ways.append(f"{plan.pipeline} pipeline stages ({plan.schedule})")
    return f"{plan.ranks} x {plan.model.name}: {' x '.join(ways)}"
