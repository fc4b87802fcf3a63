"""Set attributes of other people's modules for a while, and put back exactly what was there."""

from __future__ import annotations

from typing import Any

_ABSENT = object()


class Patches:
    """A pile of attribute changes that one call undoes, last change first.

    >>> patches = Patches()
    >>> patches.set(module, "name", value)
    >>> patches.undo()
    """

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name` to `value`; remember what its own namespace held before."""
        before = vars(owner).get(name, _ABSENT)
        self._undo.append((owner, name, before))
        setattr(owner, name, value)

    def remove(self, owner: Any, name: str) -> None:
        """Take `owner.name` out of the owner's own namespace."""
        self._undo.append((owner, name, vars(owner)[name]))
        delattr(owner, name)

    def undo(self) -> None:
        """Put everything back. Doing it twice is harmless."""
        while self._undo:
            owner, name, before = self._undo.pop()
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
