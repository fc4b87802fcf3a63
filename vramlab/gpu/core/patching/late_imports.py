"""Change modules that are slow to import, or that few programs need, once they are imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

Change = Callable[[ModuleType], None]


@contextmanager
def changed_when_imported(changes: Mapping[str, Change]) -> Iterator[None]:
    """Change modules, by name: now those that are imported, the others once they are."""
    for name, change in changes.items():
        if name in sys.modules:
            change(sys.modules[name])
    finder = _Finder(changes)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules as Python does, and has them changed once they are loaded."""

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self._changes = changes

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Find one of the modules; None for any other."""
        change = self._changes.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path) if change else None
        if change is not None and spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_change(module: ModuleType) -> None:
                load(module)
                change(module)

            spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec
