"""What the code of a repaired program may use.

Python's harmless part, and torch's public interface without what reads or writes files, runs other
code, sets limits or replaces what measures.

An answer never holds a module. `import torch` binds a `Facade`, which has the allowed names only.
"""

from __future__ import annotations

import builtins
import dataclasses
import importlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial, total_ordering
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from vramlab_classroom.judge import guards
from vramlab_classroom.judge.guards import OWN_MODULE, Facade, NotAllowed, words

__all__ = ["OWN_MODULE", "Facade", "NotAllowed", "Vocabulary", "vocabulary", "words"]

_CLOSED_BUILTINS = words(
    # They run other code, reach files or frames, wait for input, or end the process.
    "aiter anext breakpoint compile copyright credits delattr dir display eval exec exit "
    "get_ipython getattr globals hasattr help input license locals memoryview open quit setattr "
    "type vars"
)
BUILTINS: Mapping[str, object] = {
    name: value
    for name, value in vars(builtins).items()
    if not name.startswith("_") and name not in _CLOSED_BUILTINS
} | {
    "delattr": guards.delattr_,
    "getattr": guards.getattr_,
    "hasattr": guards.hasattr_,
    "setattr": guards.setattr_,
    "type": guards.type_,
    "vars": guards.vars_,
}

_WHOLE: Mapping[str, frozenset[str]] = {
    module: words(closed)
    for module, closed in {
        "bisect": "",
        "cmath": "",
        "collections": "",
        "collections.abc": "",
        "decimal": "",
        "fractions": "",
        "heapq": "",
        "itertools": "",
        "math": "",
        "numbers": "",
        "operator": "",
        "random": "",
        "re": "purge template",
        "statistics": "",
        "string": "Formatter",
        "textwrap": "",
        "typing": "ForwardRef evaluate_forward_ref get_overloads get_type_hints no_type_check "
        "no_type_check_decorator",
    }.items()
}
"""Modules of Python, and what is left out: what reads or writes attributes by name behind the
guards' back, or evaluates what a text says."""

_NAMED: Mapping[str, frozenset[str]] = {
    module: words(names)
    for module, names in {
        "abc": "ABC abstractmethod",
        "contextlib": "AbstractContextManager ContextDecorator ExitStack closing contextmanager "
        "nullcontext suppress",
        "copy": "copy deepcopy",
        "dataclasses": "FrozenInstanceError InitVar KW_ONLY MISSING asdict astuple dataclass field "
        "fields is_dataclass replace",
        "enum": "Enum Flag IntEnum IntFlag StrEnum auto unique",
        "functools": "cache cached_property cmp_to_key lru_cache partial partialmethod reduce "
        "singledispatch singledispatchmethod total_ordering update_wrapper wraps",
        "gc": "collect disable enable isenabled",
        "json": "JSONDecodeError JSONEncoder dumps loads",
        "logging": "CRITICAL DEBUG ERROR INFO WARNING basicConfig debug error getLogger info "
        "warning",
        "pprint": "pformat pprint",
        "sys": "float_info getsizeof maxsize stderr stdout version_info",
        "time": "monotonic perf_counter perf_counter_ns process_time sleep time",
        "tqdm": "tqdm trange",
        "tqdm.auto": "tqdm trange",
        "tqdm.notebook": "tqdm trange",
        "types": "MappingProxyType MethodType NoneType SimpleNamespace TracebackType",
        "warnings": "filterwarnings simplefilter warn",
        "weakref": "WeakKeyDictionary WeakSet WeakValueDictionary ref",
    }.items()
}
"""Modules of which an answer gets only some names."""

_CLOSED_NUMPY = re.compile(
    "bmat|buf|file|mem|load|save|txt|from_dlpack|from(string|regex)|err|^(show|set_|get_|info|test)"
)
"""Files, raw memory, settings, and what reads variables by name. How many numbers come from
tensors, and go back, is counted."""

_CLOSED_ATEN = re.compile("resize|set_|storage|from_file|_data$|pin_memory|record_stream|_cuda_")
"""Operators that move or lend memory. Those that read numbers out return no tensor, so
`_operators` leaves them out."""

_TENSORS = re.compile(r"(Optional\[|List\[)?Tensor\]?")

TORCH_CUDA = words(
    "Event OutOfMemoryError Stream StreamContext current_device current_stream default_stream "
    "device device_count device_of empty_cache get_device_capability get_device_name "
    "get_device_properties get_rng_state get_rng_state_all host_memory_stats initial_seed "
    "is_available is_bf16_supported is_initialized manual_seed manual_seed_all "
    "max_memory_allocated max_memory_reserved mem_get_info memory_allocated memory_reserved "
    "memory_snapshot memory_stats memory_summary reset_accumulated_memory_stats "
    "reset_max_memory_allocated reset_peak_memory_stats seed seed_all set_device set_rng_state "
    "set_rng_state_all set_stream stream synchronize"
)
"""Counters may be reset: the trial keeps the peaks. Left out are `set_per_process_memory_fraction`,
which sets the limit, other allocators and memory pools, and the recording of the history."""


@dataclass(frozen=True)
class Vocabulary:
    """Names that an answer may use."""

    modules: Mapping[str, frozenset[str]]
    """Dotted module -> its allowed names. A dotted module allows its parents as well."""

    absent: tuple[str, ...] = ()
    """Modules of torch that are not there because they have what a workshop builds."""

    def import_(self, name: str, bound: str) -> Facade:
        """Be an import of a module which binds that module, or the beginning of its name."""
        self.facade(name)
        return self.facade(bound)

    def import_from(self, module: str, name: str) -> Any:
        """Be an import of a name from a module."""
        try:
            return guards.read(self.facade(module), name)
        except guards.NoSuchName as error:
            raise guards.NoSuchModule(str(error)) from None

    def facade(self, module: str) -> Facade:
        """Return what an answer gets for a module, or refuse.

        An import of an absent module is let pass: it may be unused. It has no names.
        """
        if not self._has_module(module) and not _within(module, self.absent):
            raise guards.NoSuchModule(
                f"import {module}: this module is not there for answers. {self._hint}"
            )
        return Facade(partial(self._look_up, module))

    def without(self, modules: tuple[str, ...]) -> Vocabulary:
        """Return the same without some modules, and without all that is in them."""
        left = {name: words for name, words in self.modules.items() if not _within(name, modules)}
        return replace(self, modules=left, absent=modules)

    def _has_module(self, module: str) -> bool:
        return any(known == module or known.startswith(f"{module}.") for known in self.modules)

    def _look_up(self, module: str, name: str) -> Any:
        """Look up a name of a module when it is used: virtual GPUs replace some of torch's."""
        if self._has_module(f"{module}.{name}"):
            return self.facade(f"{module}.{name}")
        if name in self.modules.get(module, ()):
            safer = SAFER.get(f"{module}.{name}")
            return safer or getattr(sys.modules.get(module) or pkgutil.resolve_name(module), name)
        raise guards.NoSuchName(f"{module}.{name} is not there for answers. {self._hint}")

    @property
    def _hint(self) -> str:
        if self.absent:
            return f"Not here: {', '.join(self.absent)}, which has what you build."
        return (
            "A repaired program is ordinary PyTorch: no files, no other code, and nothing that "
            "sets limits or replaces what measures."
        )


def _within(name: str, modules: Iterable[str]) -> bool:
    """Return whether a module is one of several, or in one of them."""
    return any(name == each or name.startswith(f"{each}.") for each in modules)


SAFER: Mapping[str, Any] = {
    "dataclasses.dataclass": guards.own_classes_only(dataclasses.dataclass),
    "functools.singledispatch": guards.singledispatch,
    "functools.singledispatchmethod": guards.singledispatchmethod,
    "functools.total_ordering": guards.own_classes_only(total_ordering),
    "functools.update_wrapper": guards.update_wrapper,
    "functools.wraps": guards.wraps,
    "logging.getLogger": lambda name=None: guards.Silent(),
    "operator.attrgetter": guards.attrgetter,
    "operator.methodcaller": guards.methodcaller,
    "sys.stderr": guards.Silent(),
    "sys.stdout": guards.Silent(),
    "types.SimpleNamespace": guards.SimpleNamespace,
    "weakref.ref": guards.reference,
    "numpy.ndarray": guards.Array,
    "numpy.typing.NDArray": guards.Array,
    **{f"enum.{name}": kind for name, kind in guards.ENUMS.items()},
    **{f"{module}.tqdm": guards.ProgressBar for module in ("tqdm", "tqdm.auto", "tqdm.notebook")},
    **{
        f"{module}.trange": lambda *bounds, **options: guards.ProgressBar(range(*bounds))
        for module in ("tqdm", "tqdm.auto", "tqdm.notebook")
    },
    **{f"logging.{name}": guards.nothing for name in words("basicConfig debug error info warning")},
    **{f"warnings.{name}": guards.nothing for name in _NAMED["warnings"]},
}
"""What an answer gets instead of the original, by its dotted name."""


@cache
def vocabulary() -> Vocabulary:
    """Return what a repaired program may use.

    Source of the lists: the installed Python, NumPy and torch themselves, so that a function added
    there is there.
    """
    import numpy as np
    import torch
    from torch import nn, optim

    modules = dict(_NAMED)
    for module, closed in _WHOLE.items():
        names = importlib.import_module(module)
        public = getattr(names, "__all__", vars(names))
        modules[module] = _names(names, _is_no_way_out) & frozenset(public) - closed
    modules["numpy"] = frozenset(
        name
        for name in _names(np, lambda value: _is_no_way_out(value) and _is_of_numpy(value))
        if not _CLOSED_NUMPY.search(name)
    ) | words("c_ index_exp mgrid ogrid r_ s_")
    modules["numpy.linalg"] = _names(np.linalg, callable)
    modules["numpy.typing"] = words("ArrayLike DTypeLike NDArray")
    tensor_functions = frozenset(dir(torch._C._VariableFunctions)) - words(
        "from_file from_numpy frombuffer"
    )
    named = words(
        "AcceleratorError Event Generator OutOfMemoryError Size Stream Tensor "
        "are_deterministic_algorithms_enabled autocast default_generator device dtype e "
        "enable_grad finfo get_autocast_dtype get_default_device get_default_dtype "
        "get_float32_matmul_precision get_num_threads get_rng_state iinfo inf inference_mode "
        "initial_seed is_autocast_enabled is_grad_enabled is_inference_mode_enabled is_tensor "
        "layout lobpcg manual_seed memory_format nan newaxis no_grad numel pi seed "
        "set_float32_matmul_precision set_grad_enabled set_printoptions set_rng_state tensor "
        "typename use_deterministic_algorithms vmap"
    )
    constants = torch.dtype | torch.layout | torch.memory_format
    modules["torch"] = (
        named
        | _public(tensor_functions)
        | _public(torch.functional.__all__)
        | _names(torch, lambda value: isinstance(value, constants))
    )
    modules["torch.amp"] = words("GradScaler autocast custom_bwd custom_fwd is_autocast_available")
    modules["torch.autograd"] = words(
        "Function Variable backward detect_anomaly enable_grad grad inference_mode no_grad "
        "set_detect_anomaly set_grad_enabled"
    )
    modules["torch.autograd.function"] = words("Function FunctionCtx once_differentiable")
    modules["torch.autograd.functional"] = _own_functions(torch.autograd.functional)
    modules["torch.autograd.graph"] = words(
        "GradientEdge Node disable_saved_tensors_hooks get_gradient_edge register_multi_grad_hook "
        "save_on_cpu saved_tensors_hooks"
    )
    modules["torch.autograd.profiler"] = words("record_function")
    modules["torch.cuda"] = modules["torch.cuda.memory"] = TORCH_CUDA
    modules["torch.cuda.amp"] = modules["torch.amp"]
    modules["torch.cuda.random"] = TORCH_CUDA & words(
        "get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all seed seed_all "
        "set_rng_state set_rng_state_all"
    )
    modules["torch.distributed"] = words("get_rank get_world_size is_initialized")
    modules["torch.distributed.device_mesh"] = words("DeviceMesh init_device_mesh")
    modules["torch.distributed.fsdp"] = words(
        "CPUOffloadPolicy FSDPModule MixedPrecisionPolicy OffloadPolicy fully_shard"
    )
    modules["torch.distributed.tensor"] = words("DTensor Replicate Shard")
    modules["torch.func"] = _public(torch.func.__all__)
    modules["torch.linalg"] = _own_functions(torch.linalg) | {"LinAlgError"}
    modules["torch.nn"] = _subclasses(torch.nn, torch.nn.Module) | words("Buffer Parameter")
    for prefix, base in (("torch.nn.modules.", nn.Module), ("torch.optim.", optim.Optimizer)):
        for name in [each for each in sys.modules if each.startswith(prefix)]:
            if not name.removeprefix(prefix).startswith("_"):
                modules[name] = _subclasses(sys.modules[name], base)
    modules["torch.nn.modules"] = _subclasses(torch.nn.modules, torch.nn.Module)
    modules["torch.types"] = words("Device Number")
    modules["torch.nn.attention"] = frozenset({"SDPBackend", "sdpa_kernel"})
    modules["torch.nn.functional"] = _own_functions(torch.nn.functional)
    modules["torch.nn.init"] = _own_functions(torch.nn.init)
    modules["torch.nn.parallel"] = words(
        "DataParallel DistributedDataParallel data_parallel gather parallel_apply replicate scatter"
    )
    modules["torch.nn.parameter"] = words("Buffer Parameter")
    modules["torch.nn.utils"] = words(
        "clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ get_total_norm "
        "parameters_to_vector vector_to_parameters"
    )
    modules["torch.nn.utils.rnn"] = words("pack_padded_sequence pad_packed_sequence pad_sequence")
    modules["torch.ops.aten"] = _operators()
    modules["torch.optim"] = _subclasses(torch.optim, torch.optim.Optimizer)
    modules["torch.optim.lr_scheduler"] = _subclasses(
        torch.optim.lr_scheduler, torch.optim.lr_scheduler.LRScheduler
    )
    modules["torch.profiler"] = words("record_function")
    modules["torch.random"] = words(
        "default_generator fork_rng get_rng_state initial_seed manual_seed seed set_rng_state"
    )
    modules["torch.special"] = _own_functions(torch.special)
    modules["torch.testing"] = words("assert_close")
    modules["torch.utils.checkpoint"] = words(
        "CheckpointPolicy checkpoint checkpoint_sequential create_selective_checkpoint_contexts "
        "detach_variable get_device_states noop_context_fn set_checkpoint_debug_enabled "
        "set_checkpoint_early_stop set_device_states"
    )
    return Vocabulary(modules)


def _public(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if not name.startswith("_"))


def _names(module: ModuleType, suits: Callable[[Any], bool]) -> frozenset[str]:
    return _public(name for name, value in vars(module).items() if suits(value))


def _is_no_way_out(value: object) -> bool:
    """Return whether a value is neither a module nor a metaclass."""
    makes_classes = isinstance(value, type) and issubclass(value, type)
    return not (isinstance(value, ModuleType) or makes_classes)


def _is_of_numpy(value: object) -> bool:
    """Return whether a value computes with numbers, or is one."""
    import numpy as np

    if isinstance(value, type):
        return issubclass(value, np.generic | np.dtype | BaseException) or value is np.ndarray
    return callable(value) or value is None or isinstance(value, float)


def _operators() -> frozenset[str]:
    """List the operators of ATen that give tensors: for policies that name some of them."""
    import torch

    return frozenset(
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
        and schema.returns
        and _TENSORS.fullmatch(str(schema.returns[0].type))
        and not _CLOSED_ATEN.search(schema.name)
    )


def _subclasses(module: ModuleType, base: type) -> frozenset[str]:
    return _names(module, lambda value: isinstance(value, type) and issubclass(value, base))


def _own_functions(module: ModuleType) -> frozenset[str]:
    """Find the functions that a module defines, and those of torch's C++ that it passes on."""
    return _names(
        module,
        lambda value: (
            isinstance(value, BuiltinFunctionType)
            or (isinstance(value, FunctionType) and value.__module__ == module.__name__)
        ),
    )
