"""Refuse to compile CUDA extensions: there is no GPU that they could run on, and no values.

`torch.utils.cpp_extension` takes a second to import, and few programs need it: what stands in for
its functions is put there when a program imports it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.patching.late_imports import changed_when_imported
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.session import Session

_MODULE = "torch.utils.cpp_extension"
_COMPILING = ("load", "load_inline")


def install(session: Session) -> AbstractContextManager[None]:
    """Replace the functions that compile, now or when they are imported."""
    return changed_when_imported({_MODULE: functools.partial(_refuse_in, session.patches)})


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
    """Return whether sources are named as CUDA's are."""
    given = [*args[1:2], kwargs.get("sources", ())]
    paths = [path for each in given for path in ([each] if isinstance(each, str) else each)]
    return any(str(path).endswith((".cu", ".cuh")) for path in paths)
