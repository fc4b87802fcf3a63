"""What an experiment found: its stages, as data, as JSON and as a table. Knows nothing of torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from vramlab.measure.figures import QUANTITIES, Expectation, Published, Quantity
from vramlab.table import ShownAsTable, Table
from vramlab.units import format_mib, signed_bytes

FORMAT = 1
"""Version of the JSON form; raised when a field changes its meaning."""


@dataclass(frozen=True)
class StageMeasurement:
    """The allocator's counters around one stage, all in bytes."""

    name: str
    """What the stage did, such as 'forward'."""
    allocated_before_bytes: int
    allocated_after_bytes: int
    peak_allocated_bytes: int
    """Highest allocated bytes while the stage ran; at least as much as before and after."""
    reserved_before_bytes: int
    reserved_after_bytes: int
    peak_reserved_bytes: int
    """Highest reserved bytes while the stage ran."""
    device_used_after_bytes: int
    """In use on the device after the stage, by every process; the driver's view."""
    expectations: tuple[Expectation, ...] = ()
    """What was predicted or published, number by number."""
    error: str | None = None
    """'OutOfMemoryError: ...' if the stage ended in an exception, else None."""

    @property
    def growth_bytes(self) -> int:
        """Allocated bytes after the stage minus before."""
        return self.allocated_after_bytes - self.allocated_before_bytes

    @property
    def reserved_growth_bytes(self) -> int:
        """Reserved bytes after the stage minus before."""
        return self.reserved_after_bytes - self.reserved_before_bytes

    def measured_bytes(self, quantity: Quantity) -> int:
        """Look up the measured number that a quantity names (`QUANTITIES` explains each)."""
        measured: dict[Quantity, int] = {
            "growth": self.growth_bytes,
            "allocated": self.allocated_after_bytes,
            "peak": self.peak_allocated_bytes,
            "reserved": self.reserved_after_bytes,
            "reserved growth": self.reserved_growth_bytes,
            "device used": self.device_used_after_bytes,
        }
        return measured[quantity]

    def expectation(self, quantity: Quantity = "growth") -> Expectation:
        """Return what was expected of one quantity; an empty expectation if nothing was."""
        for expectation in self.expectations:
            if expectation.quantity == quantity:
                return expectation
        return Expectation(quantity)


@dataclass(frozen=True)
class Result(ShownAsTable):
    """Everything that one run of an experiment measured on one GPU."""

    name: str
    """The experiment."""
    gpu: str
    """Name of the GPU, as torch.cuda.get_device_name gives it."""
    virtual: bool
    """Whether it was a virtual one."""
    torch_version: str
    """Version of torch that ran."""
    stages: tuple[StageMeasurement, ...]
    """In the order in which they ran."""

    @property
    def gpu_in_words(self) -> str:
        """The GPU's name, and whether it is there: 'Tesla T4 (virtual)'."""
        return f"{self.gpu} (virtual)" if self.virtual else self.gpu

    def __getitem__(self, stage: str) -> StageMeasurement:
        """Return the stage of that name; the last one if several have it."""
        for measurement in reversed(self.stages):
            if measurement.name == stage:
                return measurement
        names = ", ".join(repr(measurement.name) for measurement in self.stages)
        raise KeyError(f"{self.name!r} has no stage {stage!r}; it has: {names}")

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain dicts, lists, strings and ints, ready for json.dump."""
        return {"format": FORMAT, **asdict(self)}

    def to_json(self) -> str:
        """Write the result as JSON text; bytes are whole numbers."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Result:
        """Read what `to_dict` wrote; ValueError if it has another format or is no result."""
        if data.get("format") != FORMAT:
            raise ValueError(
                f"a result of format {data.get('format')!r} cannot be read; this version of "
                f"vramlab reads format {FORMAT}: measure again, or use the version that wrote it"
            )
        return cls(
            name=data["name"],
            gpu=data["gpu"],
            virtual=data["virtual"],
            torch_version=data["torch_version"],
            stages=tuple(_stage_from_dict(stage) for stage in data["stages"]),
        )

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Read what `to_json` wrote."""
        return cls.from_dict(json.loads(text))

    def table(self) -> Table:
        """Show predicted, measured and published side by side: one row per expected number.

        A stage of which nothing was expected has one row, with its growth. Each number stands in
        MiB (2**20 bytes) with the bytes below it. The difference is what was measured minus what
        was expected: 'equal', or signed bytes.
        """
        rows = [
            _row(stage, expectation)
            for stage in self.stages
            for expectation in (stage.expectations or (Expectation("growth"),))
        ]
        errors = [f"'{stage.name}' ended in {stage.error}" for stage in self.stages if stage.error]
        return Table(
            caption=f"{self.name}, on {self.gpu_in_words} with torch {self.torch_version}",
            header=("stage", "predicted", "measured", "published", "difference"),
            rows=tuple(rows),
            notes=(*_explain(self.stages), *errors),
        )


def _row(stage: StageMeasurement, expectation: Expectation) -> tuple[str, ...]:
    measured_bytes = stage.measured_bytes(expectation.quantity)
    predicted_bytes, published = expectation.predicted_bytes, expectation.published
    return (
        f"{stage.name}\n{expectation.quantity}",
        "" if predicted_bytes is None else format_mib(predicted_bytes),
        format_mib(measured_bytes),
        "" if published is None else f"{published}\n{published.source}",
        _difference(measured_bytes, expectation),
    )


def _difference(measured_bytes: int, expectation: Expectation) -> str:
    """Measured minus expected. Two lines, named, when the two expectations are not both met."""
    differences = {}
    if expectation.predicted_bytes is not None:
        differences["predicted"] = signed_bytes(measured_bytes - expectation.predicted_bytes)
    if expectation.published is not None:
        differences["published"] = _difference_from_published(measured_bytes, expectation.published)
    if len(set(differences.values())) <= 1:
        return next(iter(differences.values()), "")
    return "\n".join(f"{name}: {difference}" for name, difference in differences.items())


def _difference_from_published(measured_bytes: int, published: Published) -> str:
    difference_bytes = measured_bytes - published.nearest_bytes
    if difference_bytes and published.agrees_with(measured_bytes):
        return "same digits"
    return signed_bytes(difference_bytes)


def _explain(stages: tuple[StageMeasurement, ...]) -> list[str]:
    """Say once what each quantity of the table means."""
    used: list[Quantity] = [
        expectation.quantity
        for stage in stages
        for expectation in (stage.expectations or (Expectation("growth"),))
    ]
    return [f"{name}: {QUANTITIES[name]}." for name in dict.fromkeys(used)]


def _stage_from_dict(data: dict[str, Any]) -> StageMeasurement:
    for name, value in data.items():
        if name.endswith("_bytes") and type(value) is not int:
            raise ValueError(
                f"stage {data.get('name')!r}: {name} must be a whole number of bytes, not {value!r}"
            )
    plain = {field.name: data[field.name] for field in fields(StageMeasurement)}
    plain["expectations"] = tuple(
        Expectation(
            quantity=expectation["quantity"],
            predicted_bytes=expectation["predicted_bytes"],
            published=Published(**expectation["published"]) if expectation["published"] else None,
        )
        for expectation in data["expectations"]
    )
    return StageMeasurement(**plain)
