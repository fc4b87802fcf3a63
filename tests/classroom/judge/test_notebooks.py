"""Which cells an answer is looked for in."""

from __future__ import annotations

from typing import Any

from vramlab_classroom.judge.notebooks import cells_of_answers


def cell(source: str, name: str = "", cell_type: str = "code") -> dict[str, Any]:
    metadata = {"nbgrader": {"grade_id": name}} if name else {}
    return {"cell_type": cell_type, "source": source, "metadata": metadata}


def test_an_answer_is_above_its_test_or_anywhere_if_that_is_gone() -> None:
    notebook = {
        "cells": [
            cell("a = 1", "a"),
            cell("some text", cell_type="markdown"),
            cell("check('a')", "a-test"),
            cell("b = 2", "b"),
        ]
    }
    assert cells_of_answers(notebook, ["a", "b"]) == {
        "a": ["a = 1"],
        "b": ["a = 1", "check('a')", "b = 2"],
    }
