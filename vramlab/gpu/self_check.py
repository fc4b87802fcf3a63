"""Compare the installed PyTorch with what vramlab knows, once in a process, at the first attach.

Three things can be wrong, and each is reported with what to do:

- The PyTorch is older than the oldest that vramlab runs with: an error.
- A private name is missing, or takes other arguments than vramlab knows: an error in a PyTorch that
  vramlab knows. In a newer one, a missing name is an error as well, since numbers could be wrong
  without a sign; other arguments raise an error where they are used, so they are only reported.
- The PyTorch is newer than the newest that vramlab knows: one warning, which names the rules used.

What is compared of a signature is a call. For a function that vramlab calls,
`Internal.arguments` has the arguments of that call, and the function must accept them. For one that
vramlab replaces, they are the arguments that the replacement accepts, and the function must have no
others, since PyTorch may pass them. So a new optional argument of the first kind changes nothing.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import Signature
from pathlib import Path
from typing import Any

import torch

from vramlab import catalogue
from vramlab.allocator import AllocatorSettings
from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import signatures, torch_internals
from vramlab.gpu.core.machine import Machine
from vramlab.gpu.core.patching import warning_lines
from vramlab.gpu.stand_ins.torch_c import CLayer
from vramlab.gpu.torch_internals import CUDA_FUNCTIONS, Found, Internal, Replaced
from vramlab.torch_versions import KNOWN_RELEASES, NEWEST, OLDEST, text

TOLD = "VRAMLAB_TOLD_OF_PYTORCH"
"""An environment variable: the newer PyTorch that this process, or one above it, was warned of."""


@dataclass(frozen=True)
class Changed:
    """A private function of PyTorch that takes other arguments than vramlab knows.

    Attributes:
        internal: the function.
        takes: its arguments in the installed PyTorch.
        known: the arguments that vramlab passes, or accepts in its place.
    """

    internal: Internal
    takes: str
    known: str

    def __str__(self) -> str:
        what = f"{self.internal.path}, which {self.internal.purpose}"
        return f"{what}: takes {self.takes}, and vramlab knows {self.known}"


@functools.cache
def check() -> None:
    """Compare, and report; nothing happens from the second time on.

    Raises:
        UnsupportedOnVirtualGPU: PyTorch is too old, or lacks what vramlab needs.
    """
    installed = torch_internals.installed_version()
    if installed < OLDEST:
        raise UnsupportedOnVirtualGPU(
            f"PyTorch {torch.__version__} is too old for vramlab, which needs {text(OLDEST)} or "
            f"later: pip install 'torch{KNOWN_RELEASES}'"
        )
    not_there, other = torch_internals.missing(), [*changed()]
    if not_there or (other and installed <= NEWEST):
        raise UnsupportedOnVirtualGPU(torch_internals.complaint(not_there, other))
    if installed > NEWEST and os.environ.get(TOLD) != torch.__version__:
        os.environ[TOLD] = torch.__version__  # for processes that this one starts
        warning_lines.warn(_newer(other))


def _newer(other: Sequence[Changed]) -> str:
    lines = [
        f"PyTorch {torch.__version__} is newer than the newest that vramlab knows: the rules of "
        f"PyTorch {text(NEWEST)} are used, so memory may differ from that of a real GPU. Upgrade "
        f"vramlab, or install a PyTorch that it knows: pip install 'torch{KNOWN_RELEASES}'."
    ]
    if other:
        lines.append("Programs that need these functions fail, because their arguments changed:")
    return "\n".join([*lines, *(f"  {each}" for each in other)])


def changed(everywhere: bool = False) -> Iterator[Changed]:
    """Find the private functions whose arguments do not fit, as far as PyTorch tells them.

    Args:
        everywhere: also in modules that PyTorch imports when they are needed.
    """
    stubs = signatures.Stubs(Path(torch.__file__).with_name("_C") / "__init__.pyi")
    replaced = [each for each in vars(Replaced).values() if isinstance(each, Internal)]
    for internal in torch_internals.internals():
        later = internal.found is Found.WHEN_IMPORTED and not everywhere
        if internal.arguments is None or later or not torch_internals.is_expected(internal):
            continue
        theirs = _signature(internal, stubs)
        ours = signatures.written(internal.arguments)
        fits = signatures.stands_in if internal in replaced else signatures.is_called_as
        if theirs is not None and not fits(ours, theirs):
            yield Changed(internal, str(theirs), f"({internal.arguments})")
    for name, function in _c_functions().items():
        theirs = _signature(CUDA_FUNCTIONS[name], stubs)
        answer = signatures.of(function)
        if theirs is not None and answer is not None and not signatures.stands_in(answer, theirs):
            yield Changed(CUDA_FUNCTIONS[name], str(theirs), str(answer))


def _signature(internal: Internal, stubs: signatures.Stubs) -> Signature | None:
    """Find what a name takes: ask the function if there is one, else PyTorch's stub file."""
    name = internal.path.removeprefix("torch._C.")
    found = signatures.of(internal.value()) if internal.is_there() else None
    named = stubs.of(name)
    if found is None or (named is not None and len(named.parameters) == len(found.parameters)):
        return named  # pybind11 often has no better names than arg0
    return found


def _c_functions() -> Mapping[str, Callable[..., Any]]:
    return CLayer(Machine([catalogue.find("T4")], AllocatorSettings(), NEWEST)).functions()
