"""A figure to compare a measurement with: what a formula predicts, or what was published."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Literal, get_args

Quantity = Literal["growth", "allocated", "peak", "reserved", "reserved growth", "device used"]
"""Which number of a stage is meant; `QUANTITIES` explains each."""

QUANTITIES: dict[Quantity, str] = {
    "growth": "allocated bytes after the stage minus before",
    "allocated": "allocated bytes after the stage",
    "peak": "highest allocated bytes while the stage ran",
    "reserved": "reserved bytes after the stage",
    "reserved growth": "reserved bytes after the stage minus before",
    "device used": "memory of the device in use after the stage, by this process and all others",
}

UNIT_BYTES = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}


@dataclass(frozen=True)
class Published:
    """A figure as its author printed it.

    A printed figure is only as exact as its digits: 903.5874 MiB stands for every number of bytes
    that prints as 903.5874. `agrees_with` therefore compares printed digits.
    """

    value: float
    """The number, with the digits that were printed: 40 and 40.0 are not the same claim."""
    unit: str
    """One of `UNIT_BYTES`: B, KiB, MiB, GiB are powers of two; KB, MB, GB powers of ten."""
    source: str
    """Where it stands, such as '001 §2.23'."""

    def __post_init__(self) -> None:
        if self.unit not in UNIT_BYTES:
            known = ", ".join(UNIT_BYTES)
            raise ValueError(f"unknown unit {self.unit!r} of a published figure; known: {known}")

    def __str__(self) -> str:
        return f"{self._decimal:,f} {self.unit}"

    @property
    def _decimal(self) -> Decimal:
        return Decimal(str(self.value))

    @property
    def nearest_bytes(self) -> int:
        """The printed figure in bytes, rounded to a whole byte."""
        return int((self._decimal * UNIT_BYTES[self.unit]).to_integral_value(ROUND_HALF_EVEN))

    def agrees_with(self, size_bytes: int) -> bool:
        """Return whether bytes, printed in this unit with as many digits, read the same."""
        printed = self._decimal
        measured = Decimal(size_bytes) / UNIT_BYTES[self.unit]
        exponent = printed.as_tuple().exponent
        assert isinstance(exponent, int)  # not infinite: it came from a printed number
        return measured.quantize(Decimal(1).scaleb(exponent)) == printed


@dataclass(frozen=True)
class Expectation:
    """What is expected of one number of a stage."""

    quantity: Quantity
    """Which number of the stage."""
    predicted_bytes: int | None = None
    """From a closed form, or None."""
    published: Published | None = None
    """From a document, or None."""

    def __post_init__(self) -> None:
        if self.quantity not in get_args(Quantity):
            known = ", ".join(QUANTITIES)
            raise ValueError(f"unknown quantity {self.quantity!r} of a stage; known: {known}")
        if self.predicted_bytes is not None and type(self.predicted_bytes) is not int:
            raise TypeError(
                f"predicted_bytes must be a whole number of bytes (int), "
                f"not {self.predicted_bytes!r}; bytes never need a fraction"
            )
