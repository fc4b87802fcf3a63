"""Bytes become a clean notebook, or a reason why not."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from typing import Any

import nbformat

from vramlab_classroom.nbgrader.released_cells import ReleasedCell
from vramlab_classroom.run import reading
from vramlab_classroom.run.reading import clean, read

MIB = 2**20


def notebook(*cells: object, **fields: object) -> bytes:
    content = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells), **fields}
    return json.dumps(content).encode()


def code(source: object = "x = 1", **fields: object) -> dict[str, Any]:
    return {"cell_type": "code", "id": "a", "metadata": {}, "source": source, **fields}


def test_a_clean_notebook_is_valid_and_has_no_outputs() -> None:
    outputs = [{"output_type": "stream", "name": "stdout", "text": "x" * 1000}]
    cell = code(["x = 1\n", "y = 2"], outputs=outputs, execution_count=7, nonsense=[1])
    cleaned = clean(notebook(cell, {"cell_type": "markdown", "source": "# ü"}))
    nbformat.validate(nbformat.from_dict(cleaned))
    assert cleaned["cells"][0] == {
        "cell_type": "code",
        "id": "a",
        "metadata": {},
        "source": "x = 1\ny = 2",
        "outputs": [],
        "execution_count": None,
    }
    assert cleaned["cells"][1]["source"] == "# ü"


def test_only_the_names_of_cells_are_kept_of_their_metadata() -> None:
    metadata = {"nbgrader": {"grade_id": "f", "points": 1000, "deep": [[[]]]}, "tags": ["x"]}
    (cell,) = clean(notebook(code(metadata=metadata)))["cells"]
    assert cell["metadata"] == {"nbgrader": {"grade_id": "f"}}


def test_ids_are_made_valid_and_different() -> None:
    cells = [code(id=wanted) for wanted in ("a", "a", "ä b", None, "x" * 65, "cell-3")]
    ids = [cell["id"] for cell in clean(notebook(*cells))["cells"]]
    assert ids[0] == "a"
    assert len(set(ids)) == len(cells)
    nbformat.validate(nbformat.from_dict(clean(notebook(*cells))))


def test_an_old_notebook_is_upgraded() -> None:
    old = nbformat.v3.new_notebook(
        worksheets=[
            nbformat.v3.new_worksheet(
                cells=[
                    nbformat.v3.new_heading_cell("Title", level=2),
                    nbformat.v3.new_code_cell("x = 1"),
                ]
            )
        ]
    )
    cells = clean(nbformat.v3.writes_json(old).encode())["cells"]
    assert [cell["source"] for cell in cells] == ["## Title", "x = 1"]


RELEASED = (
    ReleasedCell("setup", "code", "MIB = 2**20", "c1", locked=True, is_answer=False, points=None),
    ReleasedCell("f", "code", "...", "c2", locked=False, is_answer=True, points=None),
    ReleasedCell("f-test", "code", "check('f')", "c3", locked=True, is_answer=False, points=2.0),
    ReleasedCell("g-test", "code", "check('g')", "c4", locked=True, is_answer=False, points=3.0),
)


def reply(*cells: object, finding: bool = True) -> Any:
    data = base64.b64encode(notebook(*cells)).decode()
    return read(data, [asdict(cell) for cell in RELEASED], ["f", "g"], {}, finding)


def named(name: str, source: str, **fields: object) -> dict[str, Any]:
    return code(source, id=name, metadata={"nbgrader": {"grade_id": name}}, **fields)


def test_answers_are_found_in_the_cells_above_their_tests() -> None:
    cells = [named("f", "f = 1"), named("f-test", "pass"), code("f = 2", id="late")]
    assert reply(*cells)["found"] == {
        "f": {"source": "f = 1"},
        "g": {
            "problem": "no cell defines g; run the cell with your answer, then check again",
            "unanswered": True,
        },
    }


def test_locked_cells_are_as_released() -> None:
    cells = reply(named("setup", "MIB = 1"), named("f", "f = MIB"))["notebook"]["cells"]
    assert [cell["source"] for cell in cells] == [
        "MIB = 2**20",
        "f = MIB",
        "check('f')",
        "check('g')",
    ]


def test_a_file_that_is_none_gives_its_problem() -> None:
    data = base64.b64encode(b"").decode()
    assert read(data, [], ["f"], {}, True) == {"problem": "The file is empty."}


def test_no_source_is_longer_than_what_the_pool_gives_back() -> None:
    # JSON writes a character beyond the first plane with twelve: \ud83d\ude00. Each source comes
    # back in the notebook, and again as an answer.
    from vramlab_classroom.run.worker import READ_REPLY_BYTES

    assert reading.MAX_SOURCE_CHARACTERS * 12 * 2 < READ_REPLY_BYTES
