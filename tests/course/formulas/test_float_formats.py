"""Floating point formats, against PyTorch's own."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from vramlab_course.formulas.float_formats import (
    FLOAT8_E4M3,
    FLOAT16,
    FORMATS,
    TF32,
    FloatFormat,
    store,
)

DTYPES = {form.name: getattr(torch, form.name) for form in FORMATS if form is not TF32}
OWN_DTYPE = [form for form in FORMATS if form is not TF32]


@pytest.mark.parametrize("form", OWN_DTYPE, ids=lambda form: form.name)
def test_limits_are_those_of_torch(form: FloatFormat) -> None:
    info = torch.finfo(DTYPES[form.name])
    assert form.bits == info.bits == 8 * form.size_bytes
    assert form.largest == info.max
    assert form.smallest_normal == info.tiny
    assert form.epsilon == info.eps


def test_tf32_has_the_range_of_float32_and_the_digits_of_float16() -> None:
    assert TF32.bits == 19
    assert TF32.epsilon == FLOAT16.epsilon == 2**-10
    assert TF32.smallest_normal == 2**-126
    assert TF32.largest == (2 - 2**-10) * 2.0**127


def bits_of(tensor: torch.Tensor, form: FloatFormat) -> str:
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[int(form.size_bytes)]
    return f"{int(tensor.view(whole)) % 2**form.bits:0{form.bits}b}"


@pytest.mark.parametrize("form", OWN_DTYPE, ids=lambda form: form.name)
@given(number=st.floats(width=32, allow_nan=False))
def test_stores_what_torch_stores(form: FloatFormat, number: float) -> None:
    # What is too large without an infinity was nan before it was the largest number.
    assume(not form.finite or abs(number) <= form.largest)
    tensor = torch.tensor(number, dtype=torch.float32).to(DTYPES[form.name])
    stored = store(number, form)
    assert stored.value == tensor.float().item()
    assert stored.pattern == bits_of(tensor, form)


@pytest.mark.parametrize(
    ("number", "value", "parts"),
    [
        (1.0, 1.0, ("0", "01111", "0000000000")),
        (-1.5, -1.5, ("1", "01111", "1000000000")),
        (1 + 2**-11, 1.0, ("0", "01111", "0000000000")),  # half way: to the even one
        (1 + 3 * 2**-11, 1 + 2**-9, ("0", "01111", "0000000010")),
        (65504.0, 65504.0, ("0", "11110", "1111111111")),
        (65520.0, math.inf, ("0", "11111", "0000000000")),
        (2.0**-24, 2.0**-24, ("0", "00000", "0000000001")),
        (2.0**-25, 0.0, ("0", "00000", "0000000000")),
        (-0.0, 0.0, ("1", "00000", "0000000000")),
    ],
)
def test_float16_at_its_borders(number: float, value: float, parts: tuple[str, str, str]) -> None:
    stored = store(number, FLOAT16)
    assert stored.value == value
    assert stored.parts == parts


def test_without_an_infinity_the_largest_number_stands_for_what_is_larger() -> None:
    stored = store(-1e6, FLOAT8_E4M3)
    assert stored.value == -448.0
    assert stored.parts == ("1", "1111", "110")
