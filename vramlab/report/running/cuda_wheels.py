"""Packages whose wheels are made for PyTorch's CUDA build, beside a PyTorch without CUDA.

The usual wheels of torchvision and its like link to CUDA's libraries. Beside a CPU build they do
not load, and say so in words that nobody can guess from.
"""

from __future__ import annotations

import re

_OPERATORS = re.compile(r"operator (torchvision|torchaudio|torchtext|torchao)::\S+ does not exist")
_LIBRARIES = re.compile(r"lib(?:cudart|torch_cuda|c10_cuda|cublas|cudnn)[\w.]*: cannot open shared")
_INDEX = "https://download.pytorch.org/whl/cpu"


def wheel_hint(error: BaseException | None, torch_version: str) -> str | None:
    """Say what to install where an error comes from a wheel for CUDA; None for any other.

    Args:
        error: that a program ended with; what it was raised from counts, too.
        torch_version: of the installed PyTorch, such as `2.13.0+cpu`.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = str(error)
        if found := _OPERATORS.search(text):
            return _advice(found[1], torch_version)
        if _LIBRARIES.search(text):
            return _advice("the package that was imported", torch_version)
        error = error.__cause__ or error.__context__
    return None


def _advice(package: str, torch_version: str) -> str:
    release = torch_version.partition("+")[0]
    name = package if " " not in package else "PACKAGE"
    return (
        f"The wheel of {package} is made for PyTorch's CUDA build, and this PyTorch {torch_version}"
        f" is another. Install both from one place: pip install --force-reinstall --index-url "
        f"{_INDEX} torch=={release} {name}"
    )
