"""Mistakes as data: the reference answer, called with something changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vramlab_classroom.judge.mistakes import (
    Mistake,
    Try,
    instead,
    of,
    shared_by_wrong,
    without_name,
)


def weights_bytes(width: int, layers: int, *, item_bytes: int = 2, biases: bool = True) -> int:
    return item_bytes * layers * (width * width + (width if biases else 0))


def test_each_has_its_message_and_its_answer() -> None:
    mistakes = of(
        weights_bytes,
        ("You counted 4 bytes.", {"item_bytes": 4}),
        Mistake("You answered one layer.", lambda width, layers: 2 * (width * width + width)),
        ("You forgot the biases, in float32.", {"item_bytes": 4, "biases": False}),
    )
    assert [mistake.message for mistake in mistakes] == [
        "You counted 4 bytes.",
        "You answered one layer.",
        "You forgot the biases, in float32.",
    ]
    assert [mistake.answer(width=3, layers=5) for mistake in mistakes] == [
        240,  # 4 x 5 x (9 + 3)
        24,  # 2 x (9 + 3)
        180,  # 4 x 5 x 9
    ]


def test_what_the_case_says_is_changed_too() -> None:
    (mistake,) = of(weights_bytes, ("You took one layer.", {"layers": 1}))
    assert mistake.answer(width=3, layers=5) == 24  # 2 x 1 x (9 + 3)


def test_what_the_reference_does_not_take_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'item_byte'"):
        of(weights_bytes, ("You counted 4 bytes.", {"item_byte": 4}))


def test_some_answers_are_taken_for_others() -> None:
    kinds = ("full", "empty", "half")
    answer = instead(lambda number: kinds[number], {"full": "empty", "empty": "full"})
    assert [answer(number=number) for number in range(3)] == ["empty", "full", "half"]


def test_two_mistakes_can_be_made_at_once() -> None:
    mistakes = of(
        weights_bytes,
        ("You counted 4 bytes.", {"item_bytes": 4}),
        Mistake("You answered one layer.", lambda width, layers: 2 * (width * width + width)),
        ("You forgot the biases.", {"biases": False}),
        ("You counted 8 bytes.", {"item_bytes": 8}),
    )
    # Bytes are 4 or 8, not both; what is no data is not combined.
    assert [
        (both.one.message, both.other.message, both.answer(width=3, layers=5))
        for both in mistakes.twofold()
    ] == [
        ("You counted 4 bytes.", "You forgot the biases.", 180),  # 4 x 5 x 9
        ("You forgot the biases.", "You counted 8 bytes.", 360),  # 8 x 5 x 9
    ]


SENT = [{"ranks": ranks, "kind": kind} for ranks in (2, 4, 8) for kind in ("DDP", "ZeRO-1")]


def tries(answer: Callable[[int], int], truths: dict[int, int] | None = None) -> list[Try]:
    """An answer to the number of ranks in six cases, where 2**30 bytes for each rank are right."""
    found = []
    for case in SENT:
        truth = truths[case["ranks"]] if truths else 2**30 * int(case["ranks"])
        value = answer(int(case["ranks"]))
        found.append(Try(case, {"type": "int", "value": value, "shown": f"{value}"}, truth))
    return found


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda ranks: 2**10 * ranks, "in MiB; the task asks for bytes"),
        (lambda ranks: 2**30 * ranks // 10**6, "in MB; the task asks for bytes"),
        (lambda ranks: 2**29 * ranks, "is 1/2 times what was measured"),
        (lambda ranks: 3 * 2**30 * ranks, "is 3 times what was measured"),
        (lambda ranks: 2**30, "divided by ranks. Do you divide twice?"),
        (lambda ranks: 2**30 * ranks * ranks, "is ranks times what was measured"),
        (lambda ranks: 2**30 * ranks - 100, "multiples of 512 bytes: round each tensor up"),
        (lambda ranks: 2**30 * ranks + 512, ""),
        (lambda ranks: 0, ""),
    ],
)
def test_what_is_wrong_with_all_numbers_alike_needs_no_name(
    answer: Callable[[int], int], says: str
) -> None:
    found = without_name(tries(answer))
    assert says in found
    assert bool(says) == bool(found)


def test_units_and_rounding_are_told_from_the_truth() -> None:
    small = {2: 3, 4: 5, 8: 7}  # in MiB
    in_bytes = tries(lambda ranks: small[ranks] * 2**20, small)
    assert without_name(in_bytes) == "Your answers are in bytes; the task asks for MiB."
    assert without_name(tries(lambda ranks: 0, small)) == ""
    exact = {2: 500, 4: 700, 8: 1024}
    assert "exact sizes" in without_name(tries(lambda ranks: -(-exact[ranks] // 512) * 512, exact))


def test_what_wrong_cases_share_is_found() -> None:
    def wrong(*cases: tuple[int, str]) -> str:
        told = tries(lambda ranks: 2**30 * ranks)
        outcomes = [
            {**each.outcome, "value": -1}
            if (each.arguments["ranks"], each.arguments["kind"]) in cases
            else each.outcome
            for each in told
        ]
        return shared_by_wrong(
            [Try(each.arguments, o, each.truth) for each, o in zip(told, outcomes, strict=True)]
        )

    assert wrong((2, "DDP"), (4, "DDP"), (8, "DDP")) == "kind='DDP'"
    assert wrong((2, "DDP"), (4, "DDP")) == "kind='DDP'"  # though one is right
    assert wrong((2, "DDP"), (2, "ZeRO-1")) == "ranks=2"
    assert wrong((2, "DDP"), (4, "ZeRO-1")) == ""
    assert wrong((2, "DDP")) == ""  # one case shares everything with itself
