"""Docstrings are plain text; as reST they say the same."""

from __future__ import annotations

import pytest

from docs.builder.docstrings import first_sentence, to_rest


@pytest.mark.parametrize(
    ("plain", "rest"),
    [
        ("a * b and *args and c_", r"a \* b and \*args and c\_"),
        ("a | b, an unclosed ` tick", r"a \| b, an unclosed \` tick"),
        ("*by name* and **never**", "*by name* and **never**"),
        ("see `attach`.", r"see \ :py:obj:`attach`\ ."),
        ("`x = 1` and ``y <z>``", r"\ ``x = 1``\  and \ ``y <z>``\ "),
        ("- one\n- two", "- one\n- two"),
        ("In order:\n- one\n- two", "In order:\n\n- one\n- two"),
        ("Args:\n    x: a * b", "Args:\n    x: a \\* b"),
    ],
)
def test_characters_are_characters_and_code_is_code(plain: str, rest: str) -> None:
    assert to_rest(plain) == rest


def test_an_indented_paragraph_is_code_in_which_nothing_is_changed() -> None:
    assert to_rest("So:\n\n    f(*x) | `y`\n\nDone_.") == (
        "So:\n\n::\n\n    f(*x) | `y`\n\nDone\\_."
    )


def test_what_is_indented_in_a_list_is_no_code() -> None:
    text = "- one\n\n    more of it"
    assert to_rest(text) == text


def test_first_sentence_is_one_line() -> None:
    assert first_sentence("Units of\nmemory. Bytes are `int`.\n\nMore.") == "Units of memory"
