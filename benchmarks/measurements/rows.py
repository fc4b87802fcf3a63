"""Rows of assets/measurements, and what was found for them."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.estimates.results import ROOT
from vramlab import torch_versions
from vramlab.measure.figures import Published

FOLDER = ROOT / "assets" / "measurements"
RESULTS_FILE = ROOT / "benchmarks" / "measurements" / "measurements.json"
SOURCES = tuple(sorted(path.stem for path in FOLDER.glob("*.csv")))


@dataclass(frozen=True)
class Row:
    """One published figure.

    Attributes:
        source: the name of its file.
        gpu: as the source has it.
        torch: the PyTorch that it was measured with, such as "2.4".
        program: a function of the source's module.
        arguments: of the program.
        quantity: which of the program's figures.
        published: the figure.
    """

    source: str
    gpu: str
    torch: str
    program: str
    arguments: str
    quantity: str
    published: Published

    @property
    def name(self) -> str:
        """What distinguishes it from all other rows."""
        return f"{self.gpu}, {self.torch}: {self.program} {self.arguments} {self.quantity}"

    @property
    def rules(self) -> str:
        """The version whose rules are taken: the next that vramlab knows."""
        wanted = torch_versions.parse(self.torch)
        assert wanted is not None
        return torch_versions.text(
            min(each for each in torch_versions.KNOWN_RULES if each >= wanted)
        )

    def run(self) -> dict[str, int]:
        """Run the program on the GPU that PyTorch has."""
        module = importlib.import_module(f"benchmarks.measurements.{self.source}")
        pairs = (word.split("=") for word in self.arguments.split())
        values = {name: int(value) if value.isdigit() else value for name, value in pairs}
        figures: dict[str, int] = getattr(module, self.program)(**values)
        return figures

    def equals(self, found_bytes: int) -> bool:
        """Return whether bytes print as the figure does, also through a float32 number."""
        return self.published.agrees_with(found_bytes) or _through_float32(found_bytes) == (
            self.published.value
        )

    def error(self, found_bytes: int) -> float:
        """Return how far off bytes are, relative to the figure; 0 where they print the same."""
        if self.equals(found_bytes):
            return 0.0
        return found_bytes / self.published.nearest_bytes - 1


def _through_float32(size_bytes: int) -> float:
    import torch

    return float(torch.tensor(size_bytes / 2**20, dtype=torch.float32))


def rows_of(source: str) -> Iterator[Row]:
    """Read the rows of a source."""
    with (FOLDER / f"{source}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            number, unit = row.pop("measured"), row.pop("unit")
            value = float(number) if "." in number else int(number)
            yield Row(source=source, published=Published(value, unit, source), **row)


def read_results() -> dict[str, Any]:
    """Read what was found, by source: `versions`, and `found_bytes` by the row's name."""
    results: dict[str, Any] = json.loads(RESULTS_FILE.read_text(encoding="utf-8"))
    return results
