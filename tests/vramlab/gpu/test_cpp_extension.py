"""CUDA extensions are refused in words, before a compiler runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU

COMPILE: dict[str, Callable[[Any], object]] = {
    "load": lambda extension: extension.load("x", ["x.cpp", "x_kernel.cu"]),
    "load by names": lambda extension: extension.load(name="x", sources="x.cu"),
    "load_inline": lambda extension: extension.load_inline("x", "", cuda_sources="kernel"),
    "load_inline by position": lambda extension: extension.load_inline("x", "", ["kernel"]),
    "with_cuda": lambda extension: extension.load_inline("x", "", with_cuda=True),
}


@pytest.mark.parametrize("compile", COMPILE.values(), ids=COMPILE)
@pytest.mark.parametrize("imported", ["before", "afterwards"])
def test_cuda_extensions_are_refused(
    compile: Callable[[Any], object], imported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.utils.cpp_extension as plain

    load = plain.load
    if imported == "afterwards":
        monkeypatch.delitem(sys.modules, plain.__name__)
        monkeypatch.delattr("torch.utils.cpp_extension")
    finders = [*sys.meta_path]
    with VirtualGPU("T4"):
        import torch.utils.cpp_extension as extension

        with pytest.raises(UnsupportedOnVirtualGPU, match="would compile a CUDA kernel"):
            compile(extension)
    assert plain.load is load
    assert extension.load.__module__ == "torch.utils.cpp_extension"
    assert not hasattr(extension.load, "__wrapped__")
    assert sys.meta_path == finders


def test_extensions_of_the_host_are_compiled_by_pytorch() -> None:
    with VirtualGPU("T4"):
        import torch.utils.cpp_extension as extension

        with pytest.raises(Exception, match=r"missing\.cpp|ninja|compiler|Ninja"):
            extension.load("x", ["missing.cpp"])
