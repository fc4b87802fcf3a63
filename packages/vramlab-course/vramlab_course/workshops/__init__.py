"""Workshops: learners build something, and watch it run.

    from vramlab_course.workshops import watch
    watch("workshop_f_chunked_cross_entropy", chunked_loss)

Each module `workshop_...` holds a workshop's tasks, with their targets. What draws is imported when
`watch` is first used: judging needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramlab_course.workshops.watching import watch

__all__ = ["watch"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vramlab_course.workshops.watching import watch

    return watch
