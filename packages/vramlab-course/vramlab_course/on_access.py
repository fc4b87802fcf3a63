"""Packages whose modules need no import of their own: `lesson.picture` imports `picture`.

A notebook then begins with one line for all modules of its lesson, and `tasks` and `predictions`
are still read without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def modules_of(package: str) -> Callable[[str], ModuleType]:
    """Return a package's `__getattr__`, which imports a module when it is first used.

    Args:
        package: the package's `__name__`.
    """

    def __getattr__(name: str) -> ModuleType:  # noqa: N807
        module = f"{package}.{name}"
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None

    return __getattr__
