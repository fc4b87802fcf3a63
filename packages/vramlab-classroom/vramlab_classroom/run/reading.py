"""Reads a submitted file: bytes in; a clean notebook, or the reason why it is none, out.

`read` is done on a pool, because a file can be made to take all time and memory of who parses it.
What comes out is plain: known cells with known fields, no outputs, no metadata but nbgrader's names
of cells. So everybody further on, nbgrader's converters and the formgrader included, meets nothing
that a learner could have thought up, except text.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vramlab_classroom.judge.jobs import find
from vramlab_classroom.judge.notebooks import Cell, cells_of_answers, grade_id
from vramlab_classroom.nbgrader.released_cells import ReleasedCell, restore

MAX_CELLS = 2_000
MAX_SOURCE_CHARACTERS = 2_000_000
"""Of all cells together; the longest exercise has some ten thousand."""

_CELL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_METADATA = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}


class Unreadable(Exception):
    """A file is not a notebook that can be graded; the message says why."""


def read(
    data: str,
    released: Sequence[Mapping[str, Any]],
    tasks: Sequence[str],
    rights: Mapping[str, str],
    finding: bool,
) -> Mapping[str, Any]:
    """Read a submission, and find the answers in it. Every value of the reply can be JSON.

    Args:
        data: the file's bytes, in base64.
        released: fields of the exercise's `ReleasedCell`s.
        tasks: names of the tasks.
        rights: right answers that later ones may build on.
        finding: whether to find the answers at once. That is quick, but a cell that ends the
            process while it is parsed takes all answers with it.

    Returns:
        The `problem`; or the clean `notebook`, and by the name of each task what was `found` (see
        `vramlab_classroom.judge.jobs`) or else the code `cells` to find it in.
    """
    try:
        notebook = clean(base64.b64decode(data))
    except Unreadable as error:
        return {"problem": str(error)}
    notebook["cells"] = restore(notebook["cells"], [ReleasedCell(**cell) for cell in released])
    cells = cells_of_answers(notebook, tasks)
    if not finding:
        return {"notebook": notebook, "cells": cells}
    found = {task: find(task, cells[task], rights) for task in tasks}
    return {"notebook": notebook, "found": found}


def clean(content: bytes) -> dict[str, Any]:
    """Make a notebook of nbformat 4.5 from a file's content.

    Raises:
        Unreadable: it is none.
    """
    data = _upgraded(_parsed(content))
    cells = data.get("cells")
    if not isinstance(cells, list):
        raise Unreadable("It is not a notebook: it has no list of cells.")
    if len(cells) > MAX_CELLS:
        raise Unreadable(f"It has {len(cells)} cells; up to {MAX_CELLS} are read.")
    taken: set[str] = set()
    cleaned = [_clean_cell(cell, number, taken) for number, cell in enumerate(cells, 1)]
    written = sum(len(cell["source"]) for cell in cleaned)
    if written > MAX_SOURCE_CHARACTERS:
        raise Unreadable(
            f"Its cells have {written} characters; up to {MAX_SOURCE_CHARACTERS} are read."
        )
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": _METADATA, "cells": cleaned}


def _parsed(content: bytes) -> dict[str, Any]:
    if not content.strip():
        raise Unreadable("The file is empty.")
    try:
        data = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Unreadable("It is not a notebook: it is not text in UTF-8.") from None
    except RecursionError:
        raise Unreadable("It is not a notebook: it is nested too deeply.") from None
    except ValueError as error:
        raise Unreadable(f"It is not a notebook: it is not JSON ({error}).") from None
    if not isinstance(data, dict):
        raise Unreadable("It is not a notebook: it is JSON, but not an object.")
    return data


def _upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """Bring it to nbformat 4, if it is of an older format."""
    version = data.get("nbformat")
    if type(version) is not int or version < 1:
        raise Unreadable("It is not a notebook: it names no format.")
    if version > 4:
        raise Unreadable(f"It is of notebook format {version}, from the future; 4 is known.")
    if version == 4:
        return data
    import nbformat

    try:
        upgraded: dict[str, Any] = nbformat.reads(json.dumps(data), as_version=4)
    except Exception as error:
        kind = type(error).__name__
        raise Unreadable(
            f"It is of the old notebook format {version} and could not be upgraded ({kind}); "
            "open it in JupyterLab and save it."
        ) from None
    return upgraded


def _clean_cell(cell: object, number: int, taken: set[str]) -> Cell:
    if not isinstance(cell, Mapping):
        raise Unreadable(f"Cell {number} is not a cell.")
    kind = cell.get("cell_type")
    if kind not in ("code", "markdown", "raw"):
        raise Unreadable(f"Cell {number} is neither code nor text.")
    name = _name(cell)
    new: Cell = {
        "cell_type": kind,
        "id": _free_id(cell.get("id"), number, taken),
        "metadata": {"nbgrader": {"grade_id": name}} if name else {},
        "source": _text(cell.get("source", ""), number),
    }
    if kind == "code":
        new.update(outputs=[], execution_count=None)
    return new


def _name(cell: Mapping[str, Any]) -> str | None:
    metadata = cell.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("nbgrader"), Mapping):
        return None
    return grade_id({"metadata": metadata})


def _text(source: object, number: int) -> str:
    lines = source if isinstance(source, list) else [source]
    texts = [line for line in lines if isinstance(line, str)]
    if len(texts) < len(lines):
        raise Unreadable(f"The source of cell {number} is not text.")
    # JSON can carry half a surrogate pair, which no file in UTF-8 can.
    return "".join(texts).encode("utf-8", "replace").decode()


def _free_id(wanted: object, number: int, taken: set[str]) -> str:
    free = wanted if isinstance(wanted, str) and _CELL_ID.fullmatch(wanted) else f"cell-{number}"
    while free in taken:
        free = f"cell-{number}-{len(taken)}"
    taken.add(free)
    return free
