"""Programs that one engine cannot run: what to say of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramlab.native.libraries import LIBRARIES

_SETUP = "`vramlab native setup --triton`, then `vramlab run --engine native`"


def native_hint(error: BaseException | None) -> str | None:
    """Say what runs a program that ended so; None where nothing is known of its error.

    Two are known: kernels written in Triton, which a CPU build of PyTorch comes without; and
    parameters of a class of their own, such as bitsandbytes' weights of four bits, which change
    their type when `module.cuda()` moves them.
    """
    if isinstance(error, ModuleNotFoundError) and error.name == "triton":
        return f"Its kernels are written in Triton, which comes with the native engine: {_SETUP}"
    if isinstance(error, RuntimeError) and "Couldn't swap" in str(error):
        return (
            "Parameters of a class of their own, such as bitsandbytes' 4-bit weights, cannot be "
            f"moved on the portable engine. The native one runs them: {_SETUP}"
        )
    return None


_STEMS = "|".join(re.escape(library.stem) for library in LIBRARIES)
_MISSING_FILE = re.compile(rf"((?:{_STEMS})\.so[\w.]*): cannot open shared object file")
_MISSING_FUNCTION = re.compile(r"undefined symbol: (\w+)")


def foreign_library_hint(error: BaseException | None, torch_version: str) -> str | None:
    """Say what a package's own CUDA library misses on the native engine; None for other errors.

    Args:
        error: that a program ended with; what it was raised from counts, too.
        torch_version: of the PyTorch that runs, such as `2.11.0+cu130`.
    """
    for each in _chain(error):
        if found := _MISSING_FILE.search(str(each)):
            lacks = found[1]
        elif (found := _MISSING_FUNCTION.search(str(each))) and _is_of_cuda(found[1]):
            lacks = f"the function {found[1]}"
        else:
            continue
        return (
            f"A package's own library needs {lacks}, which the native engine does not have for "
            f"PyTorch {torch_version}: `vramlab native check PACKAGE` names all that it misses"
        )
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Return an exception, and those that it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_of_cuda(function: str) -> bool:
    return any(library.has(function) for library in LIBRARIES)
