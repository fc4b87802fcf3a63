"""Refuse to compile CUDA extensions: there is no GPU that they could run on, and no values.

`torch.utils.cpp_extension` takes a second to import, and few programs need it: what stands in for
its functions is put there when a program imports it.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.patches import Patches
from vramlab.gpu.core.session import Session

_MODULE = "torch.utils.cpp_extension"
_COMPILING = ("load", "load_inline")


@contextmanager
def install(session: Session) -> Iterator[None]:
    """Replace the functions that compile, now or when they are imported."""
    refuse = functools.partial(_refuse_in, session.patches)
    if _MODULE in sys.modules:
        refuse(sys.modules[_MODULE])
    finder = _Finder(refuse)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module as Python does, and has it changed once it is loaded."""

    def __init__(self, change: Callable[[ModuleType], None]) -> None:
        self._change = change

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Find the module; None for any other."""
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name == _MODULE else None
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_change(module: ModuleType) -> None:
                load(module)
                self._change(module)

            spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


def _refuse_in(patches: Patches, module: ModuleType) -> None:
    for name in _COMPILING:
        patches.set(module, name, _refusing(getattr(module, name)))


def _refusing(compile: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compile)
    def call(*args: Any, **kwargs: Any) -> Any:
        inline = args[2:3] if compile.__name__ == "load_inline" else ()
        wants_cuda = any([*inline, kwargs.get("with_cuda"), kwargs.get("cuda_sources")])
        if wants_cuda or _names_cuda(args, kwargs):
            raise UnsupportedOnVirtualGPU(
                f"{_MODULE}.{compile.__name__} would compile a CUDA kernel, which cannot run "
                "without a GPU. Use PyTorch's own ops in its place (many programs have a switch "
                "for that), or run it on PyTorch's CUDA build: see `vramlab native`"
            )
        return compile(*args, **kwargs)

    return call


def _names_cuda(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether sources are named as CUDA's are."""
    given = [*args[1:2], kwargs.get("sources", ())]
    paths = [path for each in given for path in ([each] if isinstance(each, str) else each)]
    return any(str(path).endswith((".cu", ".cuh")) for path in paths)
