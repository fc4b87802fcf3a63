"""What the code of an answer may use, by kind of task.

A prediction is arithmetic, so it has Python's harmless builtins and some of the standard library,
and no torch: what cannot allocate cannot measure. A repaired program has torch's public interface
as well, without what reads or writes files, runs other code, or resets the counters that the
judge reads.

An answer never holds a module. `import torch` binds a `Facade`, which has the allowed names only.
"""

from __future__ import annotations

import builtins
import dataclasses
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from vramlab.errors import VramlabError

OWN_MODULE = "__answer__"
"""`__module__` of what an answer defines, by which its own classes are known."""


def words(text: str) -> frozenset[str]:
    """Turn words with spaces between them into a set."""
    return frozenset(text.split())


BUILTINS: Mapping[str, object] = {
    name: getattr(builtins, name)
    for name in words(
        "abs all any bin bool callable chr complex dict divmod enumerate filter float frozenset "
        "hash hex int isinstance issubclass iter len list map max min next object oct ord pow "
        "print property range repr reversed round set slice sorted staticmethod classmethod str "
        "sum super tuple zip "
        "ArithmeticError AssertionError AttributeError Exception IndexError KeyError LookupError "
        "MemoryError NotImplemented NotImplementedError OverflowError RuntimeError StopIteration "
        "TypeError ValueError ZeroDivisionError"
    )
}
"""No `open`, `eval`, `getattr`, `type`, `globals`, ...: nothing that reaches beyond the answer."""

PLAIN_MODULES: Mapping[str, frozenset[str]] = {
    module: words(names)
    for module, names in {
        "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
        "collections": "Counter OrderedDict defaultdict deque",
        "collections.abc": "Callable Iterable Iterator Mapping Sequence",
        "contextlib": "ExitStack contextmanager nullcontext suppress",
        "dataclasses": "dataclass field",
        "functools": "cache lru_cache partial reduce",
        "heapq": "heapify heappop heappush heappushpop heapreplace nlargest nsmallest",
        "itertools": "accumulate chain combinations count cycle dropwhile groupby islice pairwise "
        "permutations product repeat starmap takewhile zip_longest",
        "math": "ceil comb e factorial floor gcd inf isqrt lcm log log10 log2 pi pow prod sqrt",
        "operator": "add floordiv mod mul neg sub truediv",
        "typing": "Any Callable Iterable Iterator Literal NamedTuple Optional Sequence Union",
    }.items()
}
"""Left out: `operator.attrgetter`, `functools.wraps` and their like, which read or write
attributes by name behind the guards' back."""

TORCH_CUDA = words(
    "Event OutOfMemoryError Stream current_device current_stream default_stream device "
    "device_count empty_cache get_device_name get_device_properties is_available "
    "max_memory_allocated max_memory_reserved mem_get_info memory_allocated memory_reserved "
    "memory_stats memory_summary stream synchronize"
)
"""Left out: `reset_peak_memory_stats`, `set_per_process_memory_fraction` and their like."""


@dataclass(frozen=True)
class Vocabulary:
    """Names that an answer may use."""

    modules: Mapping[str, frozenset[str]]
    """Dotted module -> its allowed names. A dotted module allows its parents as well."""

    hint: str
    """Ends the message about a module that is not in the list."""

    def facade(self, module: str) -> Facade:
        """Give what an answer gets for a module, or refuse."""
        if not self.has_module(module):
            raise NotAllowed(f"import {module}: this module is not there for answers. {self.hint}")
        return Facade(importlib.import_module(module), self)

    def has_module(self, module: str) -> bool:
        return any(known == module or known.startswith(f"{module}.") for known in self.modules)


class NotAllowed(VramlabError):
    """An answer uses something that is not there for answers; the message says what."""


class Facade:
    """Stands for a module in an answer: shows the allowed names, looked up when they are used.

    Looked up late because a virtual GPU replaces functions of `torch.cuda` while it is attached.
    """

    __slots__ = ("_module", "_vocabulary")

    def __init__(self, module: ModuleType, vocabulary: Vocabulary) -> None:
        self._module = module
        self._vocabulary = vocabulary

    def __getattr__(self, name: str) -> Any:
        module = self._module.__name__
        if self._vocabulary.has_module(f"{module}.{name}"):
            return self._vocabulary.facade(f"{module}.{name}")
        if name in self._vocabulary.modules.get(module, ()):
            return SAFER.get(f"{module}.{name}") or getattr(self._module, name)
        raise NotAllowed(f"{module}.{name} is not there for answers. {self._vocabulary.hint}")


def _own_dataclass(target: type | None = None, /, **options: Any) -> Any:
    """Be `dataclasses.dataclass`, which writes to the class it is given, for own classes only."""

    def decorate(target: type) -> type:
        if target.__module__ != OWN_MODULE:
            raise NotAllowed("dataclass is for classes that the answer defines")
        return dataclasses.dataclass(**options)(target)

    return decorate if target is None else decorate(target)


SAFER: Mapping[str, Callable[..., Any]] = {"dataclasses.dataclass": _own_dataclass}
"""What an answer gets instead of the original, by its dotted name."""

PLAIN = Vocabulary(
    PLAIN_MODULES,
    "An answer like this one is computed with Python's builtins and modules such as math; "
    "it cannot measure.",
)


@cache
def torch_vocabulary() -> Vocabulary:
    """Give what a repaired program may use: `PLAIN`, and torch's public interface.

    Source of the lists: the installed torch itself, so that a function added there is there.
    """
    import torch

    tensor_functions = frozenset(dir(torch._C._VariableFunctions)) - {"from_file"}
    data = frozenset(
        name
        for name, value in vars(torch).items()
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format)
    )
    named = words(
        "Generator Size Tensor autocast device e enable_grad inf inference_mode "
        "is_grad_enabled is_tensor manual_seed nan no_grad pi set_grad_enabled tensor "
        "OutOfMemoryError"
    )
    modules = dict(PLAIN_MODULES)
    modules["torch"] = _public(tensor_functions | data | named) | _public(torch.functional.__all__)
    modules["torch.amp"] = frozenset({"GradScaler", "autocast"})
    modules["torch.autograd"] = frozenset({"Function", "backward", "grad"})
    modules["torch.autograd.graph"] = frozenset({"save_on_cpu", "saved_tensors_hooks"})
    modules["torch.cuda"] = TORCH_CUDA
    modules["torch.cuda.amp"] = modules["torch.amp"]
    modules["torch.nn"] = _subclasses(torch.nn, torch.nn.Module) | {"Parameter"}
    modules["torch.nn.attention"] = frozenset({"SDPBackend", "sdpa_kernel"})
    modules["torch.nn.functional"] = _own_functions(torch.nn.functional)
    modules["torch.nn.init"] = _own_functions(torch.nn.init)
    modules["torch.nn.utils"] = frozenset({"clip_grad_norm_", "clip_grad_value_"})
    modules["torch.optim"] = _subclasses(torch.optim, torch.optim.Optimizer)
    modules["torch.utils.checkpoint"] = frozenset({"checkpoint", "checkpoint_sequential"})
    return Vocabulary(
        modules,
        "A repaired program uses torch's public interface: no files, no other code, "
        "and no resetting of counters.",
    )


def _public(names: Any) -> frozenset[str]:
    return frozenset(name for name in names if not name.startswith("_"))


def _subclasses(module: ModuleType, base: type) -> frozenset[str]:
    return _public(
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base)
    )


def _own_functions(module: ModuleType) -> frozenset[str]:
    """Find the functions that a module defines, and those of torch's C++ that it passes on."""
    return _public(
        name
        for name, value in vars(module).items()
        if isinstance(value, BuiltinFunctionType)
        or (isinstance(value, FunctionType) and value.__module__ == module.__name__)
    )
