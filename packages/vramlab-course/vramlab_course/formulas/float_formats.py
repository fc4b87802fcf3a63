"""Floating-point formats: bits of exponent and mantissa, and which number is stored.

A number is sign x significand x 2**exponent. With e exponent bits, m bits of the significand after
the point, and bias = 2**(e - 1) - 1:

    normal      1.mmm x 2**(E - bias)     E from 1 on
    subnormal   0.mmm x 2**(1 - bias)     E = 0: the same distance down to zero

The largest E stands for infinity and nan, except in float8_e4m3fn, which uses it for numbers too,
and keeps one pattern for nan. What is too large there becomes the largest number, as a cast in
PyTorch 2.13 does it (older ones gave nan). Formats of 6 and 4 bits have numbers only.

Source: IEEE 754-2019 §3.4; arXiv 2209.05433 (the float8 formats); arXiv 2310.10537 and the OCP
Microscaling Formats (MX) Specification 1.0 §5.3 (those of 6 and 4 bits); for tf32 the NVIDIA A100
Tensor Core GPU Architecture whitepaper, "TF32": 8 exponent bits and 10 of the significand, kept in
32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating point format."""

    name: str
    """As torch calls it, where it is a dtype."""
    exponent_bits: int
    fraction_bits: int
    """Bits of the significand after the point."""
    size_bytes: float
    """What a number takes in memory; more than its bits for tf32. Some share a byte."""
    finite: bool = False
    """The largest exponent is used for numbers too: there is no infinity."""
    has_nan: bool = True
    """All ones in exponent and fraction is nan, also in formats without infinity."""

    @property
    def bits(self) -> int:
        """Return the bits of sign, exponent and mantissa."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        """Return the number that is subtracted from the stored exponent."""
        return int(2 ** (self.exponent_bits - 1)) - 1

    @property
    def largest(self) -> float:
        """Return the largest finite number."""
        ones = 2 ** (self.fraction_bits + 1) - 1
        if self.finite:
            return math.ldexp(ones - self.has_nan, self.bias + 1 - self.fraction_bits)
        return math.ldexp(ones, self.bias - self.fraction_bits)

    @property
    def smallest_normal(self) -> float:
        """Return the smallest normal number; smaller ones lose precision."""
        return math.ldexp(1, 1 - self.bias)

    @property
    def smallest(self) -> float:
        """Return the smallest positive number, the distance of subnormal ones."""
        return math.ldexp(1, 1 - self.bias - self.fraction_bits)

    @property
    def epsilon(self) -> float:
        """Return the distance from 1 to the next larger number."""
        return math.ldexp(1, -self.fraction_bits)


@dataclass(frozen=True)
class Stored:
    """A number as a format stores it."""

    format: FloatFormat
    pattern: str
    """Its bits: sign, exponent, fraction, without gaps."""
    value: float
    """What the bits stand for; inf where the number is too large."""

    @property
    def parts(self) -> tuple[str, str, str]:
        """Return sign, exponent and mantissa."""
        end = 1 + self.format.exponent_bits
        return self.pattern[0], self.pattern[1:end], self.pattern[end:]


FLOAT32 = FloatFormat("float32", 8, 23, 4)
TF32 = FloatFormat("tf32", 8, 10, 4)
BFLOAT16 = FloatFormat("bfloat16", 8, 7, 2)
FLOAT16 = FloatFormat("float16", 5, 10, 2)
FLOAT8_E4M3 = FloatFormat("float8_e4m3fn", 4, 3, 1, finite=True)
FLOAT8_E5M2 = FloatFormat("float8_e5m2", 5, 2, 1)
FLOAT6_E3M2 = FloatFormat("float6_e3m2", 3, 2, 0.75, finite=True, has_nan=False)
FLOAT6_E2M3 = FloatFormat("float6_e2m3", 2, 3, 0.75, finite=True, has_nan=False)
FLOAT4_E2M1 = FloatFormat("float4_e2m1", 2, 1, 0.5, finite=True, has_nan=False)

FORMATS = (FLOAT32, TF32, BFLOAT16, FLOAT16, FLOAT8_E4M3, FLOAT8_E5M2)
"""From the most bits to the fewest, down to a byte."""
SMALL_FORMATS = (BFLOAT16, FLOAT8_E5M2, FLOAT8_E4M3, FLOAT6_E3M2, FLOAT6_E2M3, FLOAT4_E2M1)
"""Those of a byte and less, below the one that they replace."""


def store(number: float, form: FloatFormat) -> Stored:
    """Return the nearest number that a format can store, and of two equally near the even one.

    Args:
        number: any float; not nan.
        form: the format.

    Raises:
        ValueError: the number is nan, which has no nearest number.
    """
    if math.isnan(number):
        raise ValueError("nan is not a number: there is none that is nearest to it")
    sign = "1" if math.copysign(1, number) < 0 else "0"
    if math.isinf(number):
        return _too_large(form, sign)
    magnitude = abs(number)
    # The power of two below the number, and no less than that of the subnormal ones.
    power = max(math.frexp(magnitude)[1] - 1, 1 - form.bias) if magnitude else 1 - form.bias
    spacing = Fraction(2) ** (power - form.fraction_bits)
    steps = round(Fraction(magnitude) / spacing)  # Python rounds halves to even
    value = float(steps * spacing)
    if value > form.largest:
        return _too_large(form, sign)
    if steps >> (form.fraction_bits + 1):  # rounded up to the next power of two
        power, steps = power + 1, steps >> 1
    hidden = steps >> form.fraction_bits
    exponent = power + form.bias if hidden else 0
    fraction = steps & (2**form.fraction_bits - 1)
    pattern = f"{sign}{exponent:0{form.exponent_bits}b}{fraction:0{form.fraction_bits}b}"
    return Stored(form, pattern, _signed(sign, value))


def _too_large(form: FloatFormat, sign: str) -> Stored:
    """Infinity, or the largest number in formats without infinity."""
    if form.finite:
        pattern = "1" * (form.bits - 2) + ("0" if form.has_nan else "1")
        return Stored(form, sign + pattern, _signed(sign, form.largest))
    pattern = "1" * form.exponent_bits + "0" * form.fraction_bits
    return Stored(form, sign + pattern, _signed(sign, math.inf))


def _signed(sign: str, value: float) -> float:
    return -value if sign == "1" else value
