"""What the course's notebooks import: experiments, pictures, explorers, and checks of answers.

    from vramlab_course import check, experiments
    experiments.run("three-linear")              # predicted, measured, and published
    check("02_pages_and_blocks", "block_bytes")  # judges the answer that the notebook holds

Importing it is quick: what it gives is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramlab_classroom.judge import evidence
    from vramlab_course.widgets.checked import check

__version__ = "0.1.0"

__all__ = ["check", "evidence"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'vramlab_course' has no attribute {name!r}")
    if name == "check":
        from vramlab_course.widgets.checked import check

        return check
    from vramlab_classroom.judge import evidence

    return evidence
