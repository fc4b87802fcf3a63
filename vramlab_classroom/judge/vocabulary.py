"""What the code of an answer may use, by kind of task.

A prediction is arithmetic, so it has Python's harmless builtins and some of the standard library,
and no torch: what cannot allocate cannot measure. A repaired program has torch's public interface
as well, without what reads or writes files, runs other code, sets limits or replaces what measures.

An answer never holds a module. `import torch` binds a `Facade`, which has the allowed names only.
"""

from __future__ import annotations

import builtins
import importlib
import math
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from vramlab_classroom.judge import guards
from vramlab_classroom.judge.guards import OWN_MODULE, NotAllowed, words

__all__ = ["OWN_MODULE", "PLAIN", "NotAllowed", "Vocabulary", "torch_vocabulary", "words"]


BUILTINS: Mapping[str, object] = {
    name: getattr(builtins, name)
    for name in words(
        "abs all any ascii bin bool bytes callable chr complex dict divmod enumerate filter float "
        "format frozenset hash hex id int isinstance issubclass iter len list map max min next "
        "object oct ord pow print property range repr reversed round set slice sorted staticmethod "
        "classmethod str sum super tuple zip "
        "ArithmeticError AssertionError AttributeError BaseException Exception FloatingPointError "
        "ImportError IndexError KeyError LookupError MemoryError NameError NotImplemented "
        "NotImplementedError OSError OverflowError RecursionError RuntimeError StopIteration "
        "TypeError UserWarning ValueError Warning ZeroDivisionError"
    )
} | {
    "getattr": guards.getattr_,
    "hasattr": guards.hasattr_,
    "setattr": guards.setattr_,
    "type": guards.type_,
}
"""No `open`, `eval`, `globals`, `vars`, ...: nothing that reaches beyond the answer."""

_CLOSED_TYPING = words(
    "ForwardRef evaluate_forward_ref get_overloads get_type_hints no_type_check "
    "no_type_check_decorator"
)
"""They compute what a text says, or write to what they are given."""

PLAIN_MODULES: Mapping[str, frozenset[str]] = {
    "math": frozenset(name for name in vars(math) if not name.startswith("_")),
    "typing": frozenset(typing.__all__) - _CLOSED_TYPING,
    **{
        module: words(names)
        for module, names in {
            "abc": "ABC abstractmethod",
            "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
            "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
            "collections.abc": "Callable Collection Generator Hashable Iterable Iterator Mapping "
            "MutableMapping MutableSequence Sequence Set Sized",
            "contextlib": "ExitStack closing contextmanager nullcontext suppress",
            "copy": "copy deepcopy",
            "dataclasses": "asdict astuple dataclass field fields replace",
            "decimal": "Decimal ROUND_CEILING ROUND_FLOOR ROUND_HALF_UP",
            "enum": "Enum Flag IntEnum IntFlag StrEnum auto unique",
            "fractions": "Fraction",
            "functools": "cache cached_property lru_cache partial reduce wraps",
            "gc": "collect disable enable isenabled",
            "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
            "itertools": "accumulate chain combinations combinations_with_replacement compress "
            "count cycle dropwhile filterfalse groupby islice pairwise permutations product repeat "
            "starmap takewhile tee zip_longest",
            "json": "dumps loads",
            "logging": "CRITICAL DEBUG ERROR INFO WARNING basicConfig debug error getLogger info "
            "warning",
            "numbers": "Integral Number Rational Real",
            "operator": "add and_ eq floordiv ge gt itemgetter le lt mod mul ne neg or_ pow sub "
            "truediv",
            "pprint": "pformat pprint",
            "random": "Random choice choices randint random randrange sample seed shuffle uniform",
            "re": "findall fullmatch match search split sub",
            "statistics": "fmean mean median pstdev stdev",
            "time": "perf_counter process_time time",
            "tqdm": "tqdm trange",
            "tqdm.auto": "tqdm trange",
            "tqdm.notebook": "tqdm trange",
            "types": "SimpleNamespace",
            "warnings": "filterwarnings simplefilter warn",
        }.items()
    },
}
"""Left out: `operator.attrgetter`, `functools.update_wrapper` and their like, which read or write
attributes by name behind the guards' back."""

NUMPY = words(
    "abs all allclose any arange argmax argmin argsort array array_equal asarray ceil clip "
    "concatenate cumsum diff divide e exp float32 float64 floor full inf int32 int64 isclose "
    "isfinite isnan linspace log log10 log2 max maximum mean median min minimum nan ones pi power "
    "prod round sort sqrt square stack std sum var where zeros"
)
"""For the numbers that a program prints and adds up. Files, raw memory and products of matrices are
left out, and how many numbers come from tensors is counted."""

TORCH_CUDA = words(
    "Event OutOfMemoryError Stream amp current_device current_stream default_stream device "
    "device_count empty_cache get_device_capability get_device_name get_device_properties "
    "get_rng_state is_available is_bf16_supported is_initialized manual_seed manual_seed_all "
    "max_memory_allocated max_memory_reserved mem_get_info memory_allocated memory_reserved "
    "memory_snapshot memory_stats memory_summary reset_accumulated_memory_stats "
    "reset_max_memory_allocated reset_peak_memory_stats seed set_device set_rng_state stream "
    "synchronize"
)
"""Counters may be reset: the trial keeps the peaks. Left out are `set_per_process_memory_fraction`,
which sets the limit, other allocators and memory pools, and the recording of the history."""


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
        return Facade(module, self)

    def without(self, modules: Collection[str]) -> Vocabulary:
        """Give the same without some modules."""
        if not modules:
            return self
        left = {name: words for name, words in self.modules.items() if name not in modules}
        return Vocabulary(left, f"Not here: {', '.join(modules)}, which has what you build.")

    def has_module(self, module: str) -> bool:
        return any(known == module or known.startswith(f"{module}.") for known in self.modules)


class Facade:
    """Stands for a module in an answer: shows the allowed names, looked up when they are used.

    Looked up late because a virtual GPU replaces functions of `torch.cuda` while it is attached.
    """

    __slots__ = ("_module", "_vocabulary")

    def __init__(self, module: str, vocabulary: Vocabulary) -> None:
        self._module = module
        self._vocabulary = vocabulary

    def __getattr__(self, name: str) -> Any:
        module = self._module
        if self._vocabulary.has_module(f"{module}.{name}"):
            return self._vocabulary.facade(f"{module}.{name}")
        if name in self._vocabulary.modules.get(module, ()):
            safer = SAFER.get(f"{module}.{name}")
            return safer or getattr(importlib.import_module(module), name)
        raise NotAllowed(f"{module}.{name} is not there for answers. {self._vocabulary.hint}")


SAFER: Mapping[str, Any] = {
    "dataclasses.dataclass": guards.dataclass,
    "functools.wraps": guards.wraps,
    "logging.getLogger": guards.logger,
    **{f"{module}.tqdm": guards.ProgressBar for module in ("tqdm", "tqdm.auto", "tqdm.notebook")},
    **{
        f"{module}.trange": guards.progress_over_range
        for module in ("tqdm", "tqdm.auto", "tqdm.notebook")
    },
    **{f"logging.{name}": guards.nothing for name in words("basicConfig debug error info warning")},
    **{f"warnings.{name}": guards.nothing for name in PLAIN_MODULES["warnings"]},
}
"""What an answer gets instead of the original, by its dotted name."""

PLAIN = Vocabulary(
    {**PLAIN_MODULES, "numpy": NUMPY},
    "An answer like this one is computed with Python, modules such as math, and NumPy; "
    "it cannot measure.",
)


@cache
def torch_vocabulary() -> Vocabulary:
    """Give what a repaired program may use: `PLAIN`, and torch's public interface.

    Source of the lists: the installed torch itself, so that a function added there is there.
    """
    import torch

    tensor_functions = frozenset(dir(torch._C._VariableFunctions)) - {
        "from_file",
        "from_numpy",
        "frombuffer",
    }
    data = frozenset(
        name
        for name, value in vars(torch).items()
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format)
    )
    named = words(
        "Generator OutOfMemoryError Size Tensor autocast device e enable_grad finfo "
        "get_default_dtype get_rng_state iinfo inf inference_mode is_autocast_enabled "
        "is_grad_enabled is_tensor manual_seed nan no_grad numel pi set_float32_matmul_precision "
        "set_grad_enabled set_printoptions set_rng_state tensor typename "
        "use_deterministic_algorithms"
    )
    modules = dict(PLAIN.modules)
    modules["torch"] = _public(tensor_functions | data | named) | _public(torch.functional.__all__)
    modules["torch.amp"] = frozenset({"GradScaler", "autocast"})
    modules["torch.autograd"] = words("Function backward detect_anomaly grad set_detect_anomaly")
    modules["torch.autograd.function"] = words("Function FunctionCtx once_differentiable")
    modules["torch.autograd.graph"] = words(
        "disable_saved_tensors_hooks save_on_cpu saved_tensors_hooks"
    )
    modules["torch.cuda"] = modules["torch.cuda.memory"] = TORCH_CUDA - {"amp"}
    modules["torch.cuda.amp"] = modules["torch.amp"]
    modules["torch.distributed"] = words("get_rank get_world_size is_initialized")
    modules["torch.distributed.device_mesh"] = words("DeviceMesh init_device_mesh")
    modules["torch.distributed.fsdp"] = words(
        "CPUOffloadPolicy FSDPModule MixedPrecisionPolicy OffloadPolicy fully_shard"
    )
    modules["torch.distributed.tensor"] = words("DTensor Replicate Shard")
    modules["torch.func"] = _public(torch.func.__all__)
    modules["torch.linalg"] = _own_functions(torch.linalg) | {"LinAlgError"}
    modules["torch.nn"] = _subclasses(torch.nn, torch.nn.Module) | {"Parameter"}
    modules["torch.nn.attention"] = frozenset({"SDPBackend", "sdpa_kernel"})
    modules["torch.nn.functional"] = _own_functions(torch.nn.functional)
    modules["torch.nn.init"] = _own_functions(torch.nn.init)
    modules["torch.nn.parallel"] = words(
        "DataParallel DistributedDataParallel data_parallel gather parallel_apply replicate scatter"
    )
    modules["torch.nn.utils"] = words(
        "clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ get_total_norm "
        "parameters_to_vector vector_to_parameters"
    )
    modules["torch.optim"] = _subclasses(torch.optim, torch.optim.Optimizer)
    modules["torch.optim.lr_scheduler"] = _subclasses(
        torch.optim.lr_scheduler, torch.optim.lr_scheduler.LRScheduler
    )
    modules["torch.random"] = words("fork_rng get_rng_state manual_seed seed set_rng_state")
    modules["torch.special"] = _own_functions(torch.special)
    modules["torch.utils.checkpoint"] = words(
        "CheckpointPolicy checkpoint checkpoint_sequential create_selective_checkpoint_contexts "
        "noop_context_fn set_checkpoint_debug_enabled"
    )
    return Vocabulary(
        modules,
        "A repaired program is ordinary PyTorch: no files, no other code, and nothing that sets "
        "limits or replaces what measures.",
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
