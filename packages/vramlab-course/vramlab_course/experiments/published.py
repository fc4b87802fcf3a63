"""The figures that the course's documents publish, by id, with the digits that were printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any

from vramlab.measure.figures import UNIT_BYTES, Published


@dataclass(frozen=True)
class Figure:
    """What a document publishes in one place."""

    id: str
    """Its name in published.json, such as 'three-linear-peak'."""
    source: str
    """Document and section, such as '001 §2.24'."""
    what: str
    """What was measured, on which configuration."""
    value: Any
    """A number, several, a table or a word. Fractions are `Decimal`, so that 2.10 stays 2.10."""
    unit: str | tuple[str, ...]
    """Unit of the number, or of each."""

    def number(self, part: int | None = None) -> int | Decimal:
        """Return the published number; of several, the one with index `part`.

        Raises:
            TypeError: it is no number (a table, a word), or one of several was not chosen.
        """
        value = self.value if part is None else self.value[part]
        if not isinstance(value, int | Decimal):
            raise TypeError(f"the published figure {self.id!r} is not a single number: {value!r}")
        return value

    def printed(self, part: int | None = None) -> str:
        """Return the number or word as it was printed; of several, the one with index `part`.

        Raises:
            TypeError: it is a table, or one of several was not chosen.
        """
        value = self.value if part is None else self.value[part]
        return value if isinstance(value, str) else str(self.number(part))

    def unit_of(self, part: int | None = None) -> str:
        """Return the unit of the number that `number(part)` gives."""
        if isinstance(self.unit, str):
            return self.unit
        if part is None:
            raise TypeError(f"the published figure {self.id!r} has several units: {self.unit}")
        return self.unit[part]

    def memory(self, part: int | None = None) -> Published:
        """Return the number as an amount of memory. ValueError where its unit is none of memory."""
        number = self.number(part)
        value = number if isinstance(number, int) else float(number)
        return Published(value, self.unit_of(part), self.source)

    def nearest_bytes(self, part: int | None = None) -> int:
        """Return the number as bytes, rounded to a whole byte."""
        return self.memory(part).nearest_bytes

    @property
    def is_memory(self) -> bool:
        """Whether its unit is one of memory."""
        return isinstance(self.unit, str) and self.unit in UNIT_BYTES


@cache
def figures() -> Mapping[str, Figure]:
    """Return every published figure, by its id, in the documents' order."""
    text = resources.files(__package__).joinpath("published.json").read_text(encoding="utf-8")
    entries = json.loads(text, parse_float=Decimal)["figures"]
    return {
        entry["id"]: Figure(
            id=entry["id"],
            source=entry["source"],
            what=entry["what"],
            value=entry["value"],
            unit=tuple(entry["unit"]) if isinstance(entry["unit"], list) else entry["unit"],
        )
        for entry in entries
    }


def figure(figure_id: str) -> Figure:
    """Return the published figure of that id; KeyError with the known ones if there is none."""
    try:
        return figures()[figure_id]
    except KeyError:
        known = ", ".join(figures())
        raise KeyError(f"no published figure {figure_id!r}; there are: {known}") from None
