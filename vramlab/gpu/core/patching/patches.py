"""Set attributes of other people's modules for a while, and put back exactly what was there."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

_ABSENT = object()


class Patches:
    """A pile of attribute changes that one call undoes, last change first.

    Others may have kept a value meanwhile, as `mock.patch` does, and set it again after `undo()`.
    Functions that are often patched by others ask `is_undone`, and then do what was there before.

    >>> patches = Patches()
    >>> patches.set(module, "name", value)
    >>> patches.undo()
    """

    def __init__(self) -> None:
        self._undo = ExitStack()
        self.is_undone = False

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name` to `value`; remember what its own namespace held before."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        if before is _ABSENT:
            self._undo.callback(delattr, owner, name)
        else:
            self._undo.callback(setattr, owner, name, before)

    def remove(self, owner: Any, name: str) -> None:
        """Take `owner.name` out of the owner's own namespace."""
        before = vars(owner)[name]
        delattr(owner, name)
        self._undo.callback(setattr, owner, name, before)

    def undo(self) -> None:
        """Put everything back, also where putting back fails in between. Twice is harmless."""
        self.is_undone = True
        self._undo.close()
