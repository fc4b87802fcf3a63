"""Modules that are slow to import and are asked for little: that is answered without them.

    with answered_until_needed("slow", {"version": 3}):
        import slow

Until more of it is read, `slow` is a `LateModule` that has a few attributes. Whatever else is
asked of it, or of a module below it, has the real one imported, which takes its place.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_WITHOUT = ("__warningregistry__", "__wrapped__")
"""What is asked of all modules, whichever they are, and most have not."""


@contextmanager
def answered_until_needed(
    name: str,
    attributes: Mapping[str, Any],
    *,
    alone: Collection[str] = (),
    is_needed: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Put a `LateModule` in for a module, unless that has been imported or is missing.

    Args:
        name: of the module.
        attributes: what the late module has.
        alone: modules below it that are imported without it.
        is_needed: asked at the end, of a module that is still late: whether it has to be imported
            all the same, since something that came alone was changed.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None:
        yield
        return
    late = LateModule(spec, attributes, {f"{name}.{each}" for each in alone})
    finder = _Finder(late)
    sys.modules[name] = late
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if late.is_here() and is_needed():
            late.load()
        late.leave()
        sys.meta_path.remove(finder)


def is_imported(name: str) -> bool:
    """Return whether a module has been imported, and is no late one."""
    return not isinstance(sys.modules.get(name), LateModule | None)


class LateModule(ModuleType):
    """Has a few attributes of a module, and imports it for all others.

    Args:
        spec: where the module is.
        attributes: the few.
        alone: names of modules below it that are imported without it.
    """

    _late_is_made = False

    def __init__(
        self,
        spec: importlib.machinery.ModuleSpec,
        attributes: Mapping[str, Any],
        alone: Set[str],
    ) -> None:
        super().__init__(spec.name)
        self.__spec__, self.__loader__, self.__file__ = spec, spec.loader, spec.origin
        self.__path__ = spec.submodule_search_locations or []
        self.alone = alone
        vars(self).update(attributes, _late_is_made=True)

    def __getattr__(self, name: str) -> Any:
        if name in _WITHOUT:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if (path := f"{self.__name__}.{name}") in self.alone:
            return importlib.import_module(path)
        return getattr(self.load(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        # What came alone is set by its import.
        if self._late_is_made and f"{self.__name__}.{name}" not in self.alone:
            setattr(self.load(), name, value)
        else:
            super().__setattr__(name, value)

    def is_here(self) -> bool:
        """Return whether the real module has not been imported yet."""
        return sys.modules.get(self.__name__) is self

    def load(self) -> ModuleType:
        """Import the real module in this one's place."""
        if self.is_here():
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)

    def leave(self) -> None:
        """Remove the module and its submodules, unless the real one has been imported."""
        if self.is_here():
            for name in (self.__name__, *self.alone):
                sys.modules.pop(name, None)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a late module's real one, and those below it, for which that is imported before."""

    def __init__(self, late: LateModule) -> None:
        self._late, self._name = late, late.__name__

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Find a module; None for any other, and for what is to be found as usual."""
        if name == self._name:
            return self._with_what_came_alone(importlib.machinery.PathFinder.find_spec(name, path))
        is_below = name.startswith(f"{self._name}.") and name not in self._late.alone
        if is_below and self._late.is_here():
            self._late.load()
            if (module := sys.modules.get(name)) is not None:
                # Python takes the spec of a module that came with its parent, and loads it again.
                module.__spec__ = importlib.machinery.ModuleSpec(name, _AlreadyLoaded(module))
                return module.__spec__
        return None

    def _with_what_came_alone(self, spec: Any) -> Any:
        """Let the module have what is there already, as if it had imported it itself."""
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            for each in self._late.alone & sys.modules.keys():
                setattr(module, each.rpartition(".")[2], sys.modules[each])
            execute(module)

        spec.loader.exec_module = exec_module
        return spec


class _AlreadyLoaded(importlib.abc.Loader):
    """Loads a module that is there."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: Any) -> ModuleType:
        """Return the module."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is."""
        module.__spec__ = self._spec
