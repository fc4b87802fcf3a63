"""What is typed as a prediction, what it is worth, and which mistake is in it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from vramlab.units import GIB, MIB
from vramlab_course.widgets.guesses import Counters, Guess, likely_mistake

MEASURED_BYTES = 176_291_840  # 168.125 MiB


@pytest.mark.parametrize(
    ("typed", "low", "high"),
    [
        ("160", "160", "160"),
        (" 8.125 ", "8.125", "8.125"),
        ("-2", "-2", "-2"),
        ("1e3", "1000", "1000"),
        ("12,345,678.5", "12345678.5", "12345678.5"),
        ("160 MiB", "160", "160"),
        ("0.5 GiB", "512", "512"),
        ("2097152B", "2", "2"),
        ("150 to 170", "150", "170"),
        ("150-170", "150", "170"),
        ("150\u2013170", "150", "170"),
        ("150..170", "150", "170"),
        ("170 to 150", "150", "170"),
        ("150 to 170 MiB", "150", "170"),
        ("512 MiB to 1 GiB", "512", "1024"),
        ("1 to 2 GiB", "1024", "2048"),
        ("-3--1", "-3", "-1"),
        (160, "160", "160"),
        (8.125, "8.125", "8.125"),
        ((150, 170), "150", "170"),
    ],
)
def test_numbers_and_ranges_are_read(typed: object, low: str, high: str) -> None:
    assert Guess.read(typed, "MiB") == Guess(Decimal(low), Decimal(high), "MiB")


@pytest.mark.parametrize(
    "typed",
    ["", "many", "nan", "inf", float("nan"), "1,5", "12 Mb", "12 samples", "1 to", "1 to 2 to 3"],
)
def test_what_is_neither_is_refused_with_what_would_be(typed: object) -> None:
    with pytest.raises(ValueError, match=r"is not a number of MiB: enter one such as 160 or 8\.1"):
        Guess.read(typed, "MiB")


def test_a_count_has_no_bytes() -> None:
    assert str(Guess.read("20 samples", "samples")) == "20 samples"
    with pytest.raises(ValueError, match="'20 MiB' is not a number of samples"):
        Guess.read("20 MiB", "samples")


@pytest.mark.parametrize(
    ("typed", "points"),
    [
        ("168.125", 3),
        ("159.8", 3),  # 159.8 / 168.125 = 0.9505
        ("159.6", 1),  # 159.6 / 168.125 = 0.9493
        ("165 to 170", 3),  # both ends are near
        ("150 to 200", 2),
        ("100 to 200", 2),
        ("99 to 200", 1),  # ends at more than twice its beginning: it says little
        ("170 to 200", 1),
        ("0", 1),
    ],
)
def test_near_numbers_and_narrow_ranges_earn_more(typed: str, points: int) -> None:
    assert Guess.read(typed, "MiB").points(Decimal("168.125")) == points


def named_mistake(
    typed: str, mistakes: dict | None = None, counters: Counters | None = None
) -> str | None:  # type: ignore[type-arg]
    return likely_mistake(Guess.read(typed, "MiB"), MEASURED_BYTES, mistakes or {}, counters)


def test_a_lessons_mistake_is_named_by_the_number_it_leads_to() -> None:
    mistakes = {
        "You counted the input as well.": MEASURED_BYTES + 40 * MIB,
        "You left out the last output.": lambda measured_bytes: measured_bytes - 80 * MIB,
    }
    assert (
        named_mistake("208", mistakes) == "You counted the input as well."
    )  # 168.125 + 40 = 208.125
    assert named_mistake("88", mistakes) == "You left out the last output."  # 168.125 - 80 = 88.125
    assert named_mistake("80 to 90", mistakes) == "You left out the last output."
    assert named_mistake("100", mistakes) is None
    assert named_mistake("88 to 300", mistakes) is None  # the answer is in it
    assert named_mistake("168.125", mistakes) is None


def test_what_is_nearer_to_the_answer_is_no_mistake() -> None:
    assert named_mistake("168", {"You rounded.": round(166 * MIB)}) is None
    assert named_mistake("166.5", {"You rounded.": round(166 * MIB)}) == "You rounded."


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("176.3", "That is the size in MB, not MiB: 1 MiB is 1,048,576 B, 1 MB is 1,000,000 B."),
        ("42", "You counted numbers, not bytes: one in float32 takes 4."),  # 168.125 / 4 = 42.03
        ("1345", "You counted bits, not bytes: a byte has 8."),  # 168.125 * 8
        ("172160", "You are a factor of 1,024 off: look at the unit, MiB."),  # 168.125 * 1024
        ("0.16418", "You are a factor of 1,024 off: look at the unit, MiB."),  # 168.125 / 1024
    ],
)
def test_wrong_units_are_known_of_every_size(typed: str, words: str) -> None:
    assert named_mistake(typed) == words


def test_other_counters_of_the_gpu_are_recognised() -> None:
    counters = Counters(
        allocated_before_bytes=57 * MIB,
        allocated_bytes=130 * MIB,
        peak_bytes=305 * MIB,
        reserved_bytes=2 * GIB,
    )
    before, left_out = (
        named_mistake("225", counters=counters),
        named_mistake("111", counters=counters),
    )
    assert before == "You counted what was allocated before as well. It is not asked for."
    assert left_out == "You left out what was allocated before. Here it counts."  # 168.125 - 57
    for typed in ("130", "73"):  # 130 - 57 = 73
        assert "only what is kept" in str(named_mistake(typed, counters=counters))
    for typed in ("305", "248"):  # 305 - 57 = 248
        assert "lives for a moment only" in str(named_mistake(typed, counters=counters))
    assert "reserved from the driver" in str(named_mistake("2048", counters=counters))


def test_a_sum_that_is_close_to_a_counter_was_not_read_off_it() -> None:
    counters = Counters(0, 168 * MIB, 168 * MIB, 242 * MIB)
    assert named_mistake("240", counters=counters) is None  # 40 + 40 + 80 + 80
    assert named_mistake("230 to 250", counters=counters) is None
    assert "reserved from the driver" in str(named_mistake("242", counters=counters))


@pytest.mark.parametrize(("typed", "named"), [("0.05", True), ("0.06", False), ("0.0527", True)])
def test_a_number_with_fewer_digits_is_the_same_mistake(typed: str, named: bool) -> None:
    # 10.5 GiB / 200 = 0.0525 GiB: with one digit 0.05, which is 5 % less.
    mistakes = {"You took a share of it.": 10.5 * GIB / 200}
    told = likely_mistake(Guess.read(typed, "GiB"), 10.5 * GIB, mistakes, None)
    assert told == ("You took a share of it." if named else None)


def test_a_counter_that_reads_as_the_answer_explains_nothing() -> None:
    # 10 MiB were there before: with 1000 MiB measured, 1010 MiB is no mistake but near.
    counters = Counters(10 * MIB, 1010 * MIB, 1010 * MIB, 0)
    assert likely_mistake(Guess.read("1010", "MiB"), 1000 * MIB, {}, counters) is None
