"""Hints for packages that were built for PyTorch's CUDA build and run with a CPU build.

The default wheels of torchvision and similar packages link to CUDA libraries. With a CPU build of
PyTorch they fail to load, with error messages that do not show the cause.
"""

from __future__ import annotations

import re

_OPERATORS = re.compile(r"operator (torchvision|torchaudio|torchtext|torchao)::\S+ does not exist")
_LIBRARIES = re.compile(r"lib(?:cudart|torch_cuda|c10_cuda|cublas|cudnn)[\w.]*: cannot open shared")
_INDEX = "https://download.pytorch.org/whl/cpu"


def wheel_hint(error: BaseException | None, torch_version: str) -> str | None:
    """Return what to install if an error comes from a CUDA wheel; None for other errors.

    Args:
        error: The program's error; its causes are checked, too.
        torch_version: Version of the installed PyTorch, such as `2.13.0+cpu`.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = str(error)
        if found := _OPERATORS.search(text):
            return _advice(found[1], torch_version)
        if _LIBRARIES.search(text):
            return _advice("the imported package", torch_version)
        error = error.__cause__ or error.__context__
    return None


def _advice(package: str, torch_version: str) -> str:
    release = torch_version.partition("+")[0]
    name = package if " " not in package else "PACKAGE"
    return (
        f"The installed wheel of {package} needs PyTorch's CUDA build, but PyTorch {torch_version} "
        "is installed. Install matching wheels: pip install --force-reinstall --index-url "
        f"{_INDEX} torch=={release} {name}"
    )
