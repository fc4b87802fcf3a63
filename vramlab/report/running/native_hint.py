"""Hints for programs that one of the engines cannot run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from vramlab.native.libraries import LIBRARIES
from vramlab.native.report import Kind, SubstituteCall

_SETUP = "`vramlab native setup --triton`, then `vramlab run --engine native`"


def native_hint(error: BaseException | None) -> str | None:
    """Return a hint for a program that needs the native engine; None for other errors.

    There are three cases: kernels written in Triton, which PyTorch's CPU build does not include;
    torch.compile on a native engine without Triton; and parameter subclasses such as bitsandbytes'
    4-bit weights, which change their type when `module.cuda()` moves them.
    """
    if any(type(cause).__name__ == "TritonMissing" for cause in _chain(error)):
        return (
            "The native engine needs Triton for torch.compile: run `vramlab native setup "
            "--triton`, or use --engine portable, which runs the program uncompiled."
        )
    if isinstance(error, ModuleNotFoundError) and error.name == "triton":
        return f"The program needs Triton, which works on the native engine: run {_SETUP}."
    if isinstance(error, RuntimeError) and "Couldn't swap" in str(error):
        return (
            "The portable engine cannot move parameter subclasses such as bitsandbytes' 4-bit "
            f"weights, but the native engine can: run {_SETUP}."
        )
    return None


_STEMS = "|".join(re.escape(library.stem) for library in LIBRARIES)
_MISSING_FILE = re.compile(rf"((?:{_STEMS})\.so[\w.]*): cannot open shared object file")
_MISSING_FUNCTION = re.compile(r"undefined symbol: (\w+)")


def foreign_library_hint(error: BaseException | None, torch_version: str) -> str | None:
    """Return a hint about a CUDA library that a package needs; None for other errors.

    Args:
        error: The program's error; its causes are checked, too.
        torch_version: Version of the running PyTorch, such as `2.11.0+cu130`.
    """
    for cause in _chain(error):
        if found := _MISSING_FILE.search(str(cause)):
            lacks = found[1]
        elif (found := _MISSING_FUNCTION.search(str(cause))) and _is_of_cuda(found[1]):
            lacks = f"the function {found[1]}"
        else:
            continue
        return (
            f"A package needs {lacks}, which the native engine for PyTorch {torch_version} lacks. "
            "`vramlab native check PACKAGE` lists everything that is missing."
        )
    return None


def refused_call_hint(
    error: BaseException | None, calls: Sequence[SubstituteCall], line: str | None
) -> str | None:
    """Return a hint about a CUDA function that the native engine refused; None for other errors.

    Args:
        error: The program's error; its causes are checked, too.
        calls: What the program called.
        line: The program's line that failed.
    """
    messages = [str(cause) for cause in _chain(error)]
    for call in calls:
        name = call.library.partition(".so")[0].removeprefix("lib")
        signs = re.compile(rf"\b{re.escape(call.function)}\b|(?i:\b{re.escape(name)} error)")
        if call.kind is Kind.REFUSED and any(map(signs.search, messages)):
            hint = (
                f"The native engine does not simulate {call.function} of {call.library}. Try "
                "--engine portable, which counts results but not the library's workspace."
            )
            return hint if line is None else f"{hint} The call is at {line}"
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
