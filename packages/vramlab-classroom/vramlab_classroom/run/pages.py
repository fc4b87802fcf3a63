"""Makes feedback pages with nbgrader's template.

The writer gives an order (`page_orders.py`), a worker fulfils it: a page takes longer than
everything else that is done after marking. It is made on the worker's pool, because text can be
written so that its rendering does not end.
"""

from __future__ import annotations

import importlib
import json
from functools import cache
from typing import Any

import nbformat
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from vramlab_classroom.nbgrader.feedback_pages import PAGE_FILTERS, FeedbackExporter
from vramlab_classroom.run.feedback_requests import FUNCTION, Order, order


def render(order: Order, plainly: bool) -> dict[str, str]:
    """Make a page.

    Args:
        order: what it is made from.
        plainly: leave the learner's text unformatted; code and verdicts stay as they are.

    Returns:
        The page, as `html`.
    """
    notebook = nbformat.from_dict(order["notebook"])
    if plainly:
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.cell_type = "raw"
    html, _ = _exporter(order["settings"]).from_notebook_node(
        notebook, resources=dict(order["resources"])
    )
    return {"html": html}


@cache
def _exporter(settings: str) -> FeedbackExporter:
    known = json.loads(settings, object_hook=_with_functions)
    config = Config()
    config.HTMLExporter = Config(known["HTMLExporter"])
    # nbgrader's converter completes the settings: its template, and where that is.
    completed = GenerateFeedback(coursedir=CourseDirectory(config=config), config=config).config
    exporter = FeedbackExporter(config=completed)  # type: ignore[no-untyped-call]
    for step in known["steps"]:
        exporter.register_preprocessor(  # type: ignore[no-untyped-call]
            _function(step), enabled=True
        )
    return exporter


def _function(name: str) -> Any:
    module, _, function = name.removeprefix(FUNCTION).partition(":")
    return getattr(importlib.import_module(module), function)


def _with_functions(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _function(value) if isinstance(value, str) and value.startswith(FUNCTION) else value
        for key, value in settings.items()
    }


def _warm_up() -> None:
    """Compile the templates where this is imported: each fork has them then.

    With the settings of autograder/nbgrader_config.py: compiled templates are those of settings.
    """
    config = Config()
    config.HTMLExporter.filters = PAGE_FILTERS
    cells = [nbformat.v4.new_markdown_cell("a"), nbformat.v4.new_code_cell("a")]
    cells[1].outputs = [nbformat.v4.new_output("stream", text="a")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    facts = {"score": 0, "max_score": 0, "late_penalty": 0}
    resources = {"nbgrader": {"notebook": "a", **facts}, "unique_key": "a"}
    render(order(notebook, resources, config), plainly=False)


_warm_up()
