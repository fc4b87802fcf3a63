"""Import Dynamo, only for programs that need it: it takes half as long as PyTorch itself.

Every program that trains would: optimizers and checkpoints ask Dynamo to leave a function alone, or
to break its graph. On a virtual GPU nothing is compiled (`compile.py`), so that there is nothing to
do for either.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from vramlab.gpu.core.patching.late_modules import LateModule, answered_until_needed, is_imported
from vramlab.gpu.core.session import Session
from vramlab.gpu.torch_internals import DYNAMO, KEPT_BY_DYNAMO


def install(session: Session) -> AbstractContextManager[None]:
    """Answer for Dynamo."""
    return without_dynamo()


@contextmanager
def without_dynamo() -> Iterator[None]:
    """Replace Dynamo, unless it is imported already, until more of it is needed."""
    left_alone = _LeftAlone()
    attributes = {"graph_break": graph_break, "disable": left_alone.disable}
    try:
        # Checkpoints read its `config`, a small module.
        with answered_until_needed(DYNAMO, attributes, alone=("config",), is_needed=_has_settings):
            yield
    finally:
        left_alone.forget()


def graph_break(msg: str = "") -> None:
    """Do nothing: there is no graph to break."""


class _LeftAlone:
    """The functions that Dynamo was asked to leave alone while it was not there."""

    def __init__(self) -> None:
        self._calls: WeakKeyDictionary[Callable[..., Any], Any] = WeakKeyDictionary()

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        """Stand in for `torch._dynamo.disable`: once Dynamo is there, it is asked itself."""
        if fn is None:
            return functools.partial(self.disable, recursive=recursive, **options)
        if not isinstance(fn, FunctionType | MethodType):
            return _dynamo().disable(fn, recursive, **options)

        @functools.cache
        def disabled() -> Callable[..., Any]:
            made: Callable[..., Any] = _dynamo().disable(fn, recursive, **options)
            return made

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            return disabled()(*args, **kwargs) if is_imported(DYNAMO) else fn(*args, **kwargs)

        self._calls[fn] = call
        return call

    def forget(self) -> None:
        """Let PyTorch ask again: it keeps the first answer."""
        for function, call in list(self._calls.items()):
            if getattr(function, KEPT_BY_DYNAMO, None) is call:
                delattr(function, KEPT_BY_DYNAMO)
        self._calls.clear()


def _dynamo() -> Any:
    module = sys.modules[DYNAMO]
    return module.load() if isinstance(module, LateModule) else module


def _has_settings() -> bool:
    """Return whether the program has changed Dynamo's `config`, which has to last."""
    config = sys.modules.get(f"{DYNAMO}.config")
    return config is not None and bool(config.codegen_config())
