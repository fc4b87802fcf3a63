"""Mistakes as data: the reference answer, called with something changed."""

from __future__ import annotations

import pytest

from vramlab_classroom.judge.mistakes import Mistake, instead, of


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
