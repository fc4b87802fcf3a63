"""What a feedback page is made from, written down so that a worker anywhere can make it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import GetGrades
from traitlets.config import Config

Order = Mapping[str, Any]

FUNCTION = "function "
"""What the name of a function or a class begins with in an order."""


def order(notebook: Any, resources: Mapping[str, Any], config: Config) -> Order:
    """Write down what a page is made from; all of it can be JSON.

    Args:
        notebook: with the grades, as `GetScores` leaves it.
        resources: nbgrader's, as `GetScores` leaves them.
        config: of the course.
    """
    steps = GenerateFeedback(coursedir=CourseDirectory(config=config), config=config).preprocessors
    return {
        "notebook": json.loads(json.dumps(notebook)),
        "resources": {key: resources[key] for key in ("nbgrader", "unique_key")},
        "settings": json.dumps(
            {
                "HTMLExporter": dict(config.HTMLExporter),
                "steps": [step for step in steps if not issubclass(step, GetGrades)],
            },
            default=_name,
            sort_keys=True,
        ),
    }


def _name(function: Any) -> str:
    return f"{FUNCTION}{function.__module__}:{function.__qualname__}"
