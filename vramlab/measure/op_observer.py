"""Look at every op of torch that runs, below autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vramlab.gpu.torch_internals import OpOverload, TorchDispatchMode

Note = Callable[[OpOverload, Sequence[Any], dict[str, Any], Any], None]
"""Called after an op has run, with the op, its arguments and its result."""


class WatchOps(TorchDispatchMode):
    """While it is entered, runs each op as it is and tells `note` of it afterwards."""

    def __init__(self, note: Note) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._note = note

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self._note(func, args, kwargs, result)
        return result
