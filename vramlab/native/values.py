"""Small tensors stay true on the native engine.

Kernels compute nothing there. But what steers a program is small: positions, masks, lengths,
counts, the scale of a GradScaler. Such tensors have shadows (`vramlab.gpu.core.values`), which
are the GPU's memory itself: the engine's device memory is memory of the host. A function of torch
runs first on the GPU, by PyTorch's own code, so what it allocates does not change. If all its
operands are known, it then runs again on the host.

C++ passes no function mode: a tensor that it has changed in place has another version than its
shadow. What C++ reads of tensors itself, `counting.py` answers.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, wraps
from itertools import chain, islice
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.overrides import TorchFunctionMode

from vramlab.gpu.attached_gpus import ATTACHED
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.tensors import outputs_of, tensors_in
from vramlab.gpu.core.values.read_places import ReadPlaces
from vramlab.gpu.core.values.shadows import (
    DECIDING,
    MOST_BYTES,
    OVERWRITING,
    UNKNOWN,
    WRITING_PLACES,
    Shadow,
    Shadows,
    no_grad,
)
from vramlab.gpu.ops.values import HEALTHY, AnswerNan, UnknownNumber, likely_equal
from vramlab.gpu.stand_ins.function_modes import hide_from_layers
from vramlab.gpu.stand_ins.nan_sentinel import UNKNOWN_VALUE, pass_for_finite
from vramlab.gpu.stand_ins.ranks import object_collectives
from vramlab.gpu.torch_internals import (
    DisableTorchFunction,
    Replaced,
    get_function_mode_stack,
    pop_function_mode,
    push_function_mode,
    storage_id,
    version_of,
)
from vramlab.native.counting import CountingKernels

_CPU = torch.device("cpu")
_FOLLOWED = (torch.Tensor, torch.nn.Parameter)
_LISTS = (list, tuple)
_ATTRIBUTE = "_vramlab_shadow"
_RANDOM = (
    *("rand", "empty", "bernoulli", "multinomial", "normal", "uniform", "poisson", "exponential"),
    *("cauchy", "geometric", "dropout", "binomial", "resize", "set_"),
)
"""Parts of names of functions with unknown results."""
_CONVERTS = frozenset(
    {"to", "cuda", "type", "type_as", "int", "long", "bool", "short", "char", "byte"}
    | {"float", "double", "half", "bfloat16", "cpu"}
)
_FILLS: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], Any]] = {
    "zeros": lambda args, kwargs: 0,
    "zeros_like": lambda args, kwargs: 0,
    "new_zeros": lambda args, kwargs: 0,
    "ones": lambda args, kwargs: 1,
    "ones_like": lambda args, kwargs: 1,
    "new_ones": lambda args, kwargs: 1,
    "full": lambda args, kwargs: args[1] if len(args) > 1 else kwargs["fill_value"],
    "full_like": lambda args, kwargs: args[1] if len(args) > 1 else kwargs["fill_value"],
    "new_full": lambda args, kwargs: args[2] if len(args) > 2 else kwargs["fill_value"],
}
"""Factories, and from their arguments what they fill a tensor with."""
_WRITES = ("copy_", "__setitem__")
"""Functions that write one tensor into another, or a part of it."""
_READS = frozenset({"item", "tolist", "__float__"})
_SHOWS = frozenset({"__repr__", "__format__"})
_TRUTHS = frozenset({"equal", "allclose"})

_UNSCALE = "_amp_foreach_non_finite_check_and_unscale_"
_SPECIAL = frozenset(
    {*_READS, *_SHOWS, *_TRUTHS, *_CONVERTS, *_FILLS, *HEALTHY, *OVERWRITING, *DECIDING, _UNSCALE}
    | WRITING_PLACES
    | {"__and__", "__or__", "__iand__", "__ior__"}
)
"""Functions of which something may be known although an operand is not."""


_ASKS = frozenset(
    {"__get__", "dim", "ndimension", "size", "stride", "numel", "nelement", "__len__"}
    | {"element_size", "storage_offset", "is_contiguous", "is_complex", "is_floating_point"}
    | {"is_signed", "is_conj", "is_neg", "get_device", "data_ptr", "untyped_storage"}
)
"""Functions that compute nothing and change nothing: attributes, and questions about a tensor."""


class _Kept(NamedTuple):
    shadow: Shadow
    version: int


class MemoryShadows(Shadows):
    """Shadows that lie in the memory of the GPU; of what is uniform, beside its storage."""

    def shadow_of(self, tensor: torch.Tensor) -> Shadow | None:
        """Return the shadow of a tensor's storage; None where C++ has changed it since."""
        kept: _Kept | None = tensor.untyped_storage().__dict__.get(_ATTRIBUTE)
        return None if kept is None or kept.version != _version(tensor) else kept.shadow

    def set_shadow(self, tensor: torch.Tensor, shadow: Shadow | None) -> None:
        """Give a tensor's storage a shadow, or take it away."""
        attributes = tensor.untyped_storage().__dict__
        if shadow is None:
            attributes.pop(_ATTRIBUTE, None)
        else:
            attributes[_ATTRIBUTE] = _Kept(shadow, _version(tensor))

    def empty(self, tensor: torch.Tensor) -> Shadow:
        """Make a shadow of the memory of a tensor's storage."""
        storage = tensor.untyped_storage()
        memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
        return Shadow(torch.frombuffer(memory, dtype=torch.uint8).untyped_storage())

    def is_lost(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is followed but not known, and counts its changes."""
        if not tensor.is_cuda or tensor.is_inference():
            return False
        try:
            kept: _Kept | None = tensor.untyped_storage().__dict__.get(_ATTRIBUTE)
        except NotImplementedError:  # as in `is_followed`
            return False
        return kept is None or kept.version != version_of(tensor)

    def is_followed(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is a dense one on a GPU, and has a storage of its own."""
        if type(tensor) not in _FOLLOWED or not tensor.is_cuda:
            return False
        if tensor.layout is not torch.strided:
            return False
        try:
            tensor.untyped_storage()
        except NotImplementedError:  # inside of torch.func's transforms
            return False
        return True


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else version_of(tensor)


class KnownValues(TorchFunctionMode):
    """Keeps small tensors true in the calling thread, and what C++ counts in all threads.

    Args:
        policy: what a program gets where it reads a value that is not known.

    Attributes:
        policy: the same.
    """

    def __init__(self, policy: AnswerNan | None = None) -> None:
        super().__init__()
        self.policy = AnswerNan() if policy is None else policy
        self._shadows = MemoryShadows()
        self._counting = CountingKernels(self._shadows, self.policy)
        self._undo = ExitStack()
        self._unknown: WeakKeyDictionary[torch.optim.Optimizer, tuple[int, int]] = (
            WeakKeyDictionary()
        )

    @property
    def reads(self) -> Counter[tuple[str, str]]:
        """(what, "file:line") -> how often a value was read that no kernel has computed."""
        return self.policy.reads

    @property
    def places(self) -> ReadPlaces:
        """Where in the code that was."""
        return self.policy.places

    def __enter__(self) -> KnownValues:
        """Begin; what torch.compile makes from now on runs without this mode."""
        with ExitStack() as undo:
            undo.enter_context(self._counting.installed())
            patches = Patches()
            undo.callback(patches.undo)
            pass_for_finite(patches)
            hide_from_layers(patches, KnownValues)
            if torch.distributed.is_available():
                object_collectives.install(patches)
                verify = Replaced.VERIFY_PARAMS
                patches.set(*verify.at, self._reading_memory(verify.value()))
            patches.set(torch, "compile", self._compiler(torch.compile))
            self._set_steps_apart(patches)
            super().__enter__()  # type: ignore[no-untyped-call]
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        """End, and restore torch.compile."""
        super().__exit__(*exception)  # type: ignore[no-untyped-call]
        self._undo.close()

    def _reading_memory(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Let a function in C++ read numbers that it has copied to the GPU itself."""

        @wraps(function)
        def read(*args: Any) -> Any:
            with self._counting.passing():
                return function(*args)

        return read

    def _compiler(self, compile_: Callable[..., Any]) -> Callable[..., Any]:
        """torch.compile, whose results are left alone: it would compile this mode along."""

        @wraps(compile_)
        def compile_apart(model: Any = None, **how: Any) -> Any:
            if model is None:  # a decorator with arguments
                return lambda function: compile_apart(function, **how)
            compiled = compile_(model, **how)
            if isinstance(compiled, torch.nn.Module):
                compiled.forward = self._apart(compiled.forward)
                return compiled
            return self._apart(compiled)

        return compile_apart

    def _set_steps_apart(self, patches: Patches) -> None:
        """Let steps of PyTorch's optimizers run without this mode, unless they call the program.

        They ask each parameter for its gradient and more: half of all calls of a training step are
        theirs. What they read of a GPU, `counting.py` answers.

        Source: `_patch_step_function` in torch/optim/optimizer.py, PyTorch 2.13.
        """
        hook = torch.optim.Optimizer.profile_hook_step
        zero_grad = torch.optim.Optimizer.zero_grad
        forget_gradients = self._apart(zero_grad)

        def hook_step(step: Callable[..., Any]) -> Any:
            if not step.__module__.startswith("torch.optim."):
                return hook(step)
            apart = self._apart(step)

            @wraps(step)
            def run(optimizer: Any, closure: Any = None, **kwargs: Any) -> Any:
                if closure is not None or self._knows_of(optimizer):
                    return step(optimizer, closure, **kwargs)
                return apart(optimizer, **kwargs)

            return hook(run)

        @wraps(zero_grad)
        def forget_or_fill(optimizer: Any, set_to_none: bool = True) -> None:
            (forget_gradients if set_to_none else zero_grad)(optimizer, set_to_none)

        patches.set(torch.optim.Optimizer, "zero_grad", forget_or_fill)
        patches.set(torch.optim.Optimizer, "profile_hook_step", staticmethod(hook_step))
        for kind in _kinds_of(torch.optim.Optimizer):
            step: Any = vars(kind).get("step")
            if getattr(step, "hooked", False):  # its first optimizer was made before
                hooked = hook_step(step.__wrapped__)
                hooked.hooked = True
                patches.set(kind, "step", hooked)

    def _knows_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether anything is known of an optimizer's parameters and states on GPUs.

        Nothing known stays so until there are other states: a step apart makes nothing known.
        """
        states_then = (id(optimizer.state), len(optimizer.state))
        if self._unknown.get(optimizer) == states_then:
            return False
        shadows = self._shadows
        parameters = (each for group in optimizer.param_groups for each in group["params"])
        states = (each for state in optimizer.state.values() for each in state.values())
        with DisableTorchFunction():
            if any(
                shadows.is_followed(each) and shadows.shadow_of(each) is not None
                for each in chain(parameters, states)
            ):
                return True
        self._unknown[optimizer] = states_then
        return False

    def _apart(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that torch.compile made, or an optimizer's, called without this mode.

        What it changes in place has another version then, and is known no more.
        """

        @wraps(compiled)
        def run(*args: Any, **kwargs: Any) -> Any:
            modes = get_function_mode_stack()
            if torch.compiler.is_compiling() or modes[-1:] != [self]:
                return compiled(*args, **kwargs)
            pop_function_mode()
            try:
                return compiled(*args, **kwargs)
            finally:
                push_function_mode(self)

        return run

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a function of torch, and compute what it gave where that is known."""
        name = getattr(func, "__name__", "")
        # Tensors of a virtual GPU have no memory.
        if name in _ASKS or ATTACHED.newest is not None:
            return func(*args, **kwargs) if kwargs else func(*args)
        shadows = self._shadows
        kwargs = kwargs or {}
        is_plain = name not in _SPECIAL and "out" not in kwargs
        if is_plain and args:  # most calls end here: the first operand alone says it
            first = args[0]
            if type(first) in _LISTS and first:
                first = first[0]
            if type(first) in _FOLLOWED and shadows.is_lost(first):
                return func(*args, **kwargs)  # what it changes has another version then
        elif name in _READS and args:
            if not shadows.is_followed(args[0]):
                return func(*args, **kwargs)
            return self._read(func, name, args, kwargs)
        elif name in _SHOWS:
            with self._counting.showing():
                return func(*args, **kwargs)
        given: list[torch.Tensor] = []
        known: list[tuple[torch.Tensor, Shadow, int]] = []
        for each in tensors_in(args, kwargs):
            if not shadows.is_followed(each):
                continue
            given.append(each)
            if (shadow := shadows.shadow_of(each)) is not None:
                known.append((each, shadow, _version(each)))
            elif is_plain and not each.is_inference():
                return func(*args, **kwargs)
        if given and name in _TRUTHS:
            return self._truth(func, name, args, kwargs)
        result = func(*args, **kwargs)
        if not given and not _is_made(result):
            return result
        changed = []
        for tensor, shadow, version in known:
            if _version(tensor) != version or (tensor.is_inference() and _changes(name, kwargs)):
                shadows.set_shadow(tensor, shadow)
                changed.append(tensor)
        is_counter = len(changed) == 1 and changed[0] is result and is_plain and not kwargs
        is_counter = is_counter and args[0] is result and not _is_random(name)
        if is_counter and shadows.count_on(func, args):
            return result
        if changed or name == "__setitem__" or isinstance(result, torch.Tensor | tuple | list):
            with DisableTorchFunction(), no_grad():
                self._follow(func, name, args, kwargs, result, given, changed, len(known))
        return result

    def _follow(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: Any,
        given: Sequence[torch.Tensor],
        changed: list[torch.Tensor],
        known_count: int,
    ) -> None:
        """Note what a function gave, and what it has changed.

        Args:
            func: the function.
            name: its name.
            args: positional arguments.
            kwargs: by keyword.
            result: what it returned.
            given: the tensors on GPUs among its arguments.
            changed: those that were known, and that it has changed.
            known_count: how many were known.
        """
        shadows = self._shadows
        may_overwrite = name in OVERWRITING or name in WRITING_PLACES
        if may_overwrite and not changed and given and args and given[0] is args[0]:
            changed.append(given[0])
            known_count += 1
        elif isinstance(out := kwargs.get("out"), torch.Tensor) and shadows.shadow_of(out) is None:
            changed.append(out)
            known_count += 1
        if _is_random(name):
            for tensor in changed:
                shadows.forget(tensor)
        elif name in _FILLS:
            value = _FILLS[name](args, kwargs)
            self._fill(result, value.item() if isinstance(value, torch.Tensor) else value)
        elif name in _CONVERTS:
            self._convert(name, args[0], result)
        elif name in _WRITES and given and given[0] is args[-1] and args[0].device == _CPU:
            self._bring(name, given[0], args[0], args[1] if len(args) > 2 else ...)
        elif known_count < len(given):
            for tensor in changed:
                shadows.forget(tensor)
            if name == _UNSCALE:
                self._fill(args[1], 0.0)  # as a healthy run finds no infinities
            elif name in HEALTHY and isinstance(result, torch.Tensor):
                self._fill(result, HEALTHY[name])
            elif len(args) > 1 and (op_name := _op_name(name)) in DECIDING:
                shadows.decide(op_name, args, result)
        elif changed or any(self._is_new(each, given) for each in outputs_of(result)):
            if not given:
                kwargs = {**kwargs, "device": _CPU, "pin_memory": False}
                kwargs = {key: value for key, value in kwargs.items() if value is not False}
            shadows.follow(func, _op_name(name), args, kwargs, result, changed)

    def _fill(self, tensor: Any, value: Any) -> None:
        """Note what a tensor was filled with, unless it wraps others, as a DTensor does."""
        if isinstance(tensor, torch.Tensor) and self._shadows.is_followed(tensor):
            self._shadows.fill(tensor, value)

    def _is_new(self, tensor: torch.Tensor | None, given: Sequence[torch.Tensor]) -> bool:
        """Return whether a tensor is on a GPU, and no view of one that was given."""
        if tensor is None or not self._shadows.is_followed(tensor):
            return False
        storage = storage_id(tensor.untyped_storage())
        return all(storage_id(each.untyped_storage()) != storage for each in given)

    def _convert(self, name: str, source: torch.Tensor, result: torch.Tensor) -> None:
        """Note what a tensor of another dtype or device holds."""
        if not isinstance(result, torch.Tensor) or result is source:
            return
        shadows = self._shadows
        values = shadows.known(source) if shadows.is_followed(source) else source.detach()
        if result.layout is not torch.strided:
            return
        if shadows.is_followed(result):
            if values is not None:
                shadows.learn(result, values)
        elif result.device.type == "cpu" and shadows.is_followed(source):
            self._bring(name, source, result)

    def _bring(
        self, name: str, source: torch.Tensor, target: torch.Tensor, place: Any = ...
    ) -> None:
        """Give a host tensor what a GPU tensor holds, since no kernel has written it there.

        What is not known is left as it was copied if its storage is larger than a shadow: it may
        have come from the host.
        """
        value: Any = self._shadows.known(source)
        if value is None and source.untyped_storage().nbytes() <= MOST_BYTES:
            read = self.policy.read if source.numel() == 1 else self.policy.read_array
            value = read(f"{name.removeprefix('__').removesuffix('__')}()", source)
        if value is not None:
            target[place] = value

    def _read(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Read the numbers of a tensor."""
        (tensor,) = args
        with DisableTorchFunction(), torch.no_grad():
            if (values := self._shadows.known(tensor)) is not None:
                return func(values)
            what = f"{name.strip('_')}()"
            if name == "tolist" and tensor.dim() and tensor.numel():
                each = self.policy.read(what, tensor)
                return torch.full((), each, dtype=tensor.dtype).expand(tensor.size()).tolist()
            if tensor.numel() != 1:
                return func(*args, **kwargs)
            number: Any = self.policy.read(what, tensor)
            if name != "__float__":
                return number
            return UNKNOWN_VALUE if type(number) is UnknownNumber else float(number)

    def _truth(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> bool:
        """Compare two tensors; if they are not known, as it is in a healthy run."""
        shadows = self._shadows
        with self._counting.passing():
            result: bool = func(*args, **kwargs)
        truth = shadows.follow(func, name, args, kwargs, result)
        if truth is not UNKNOWN:
            return bool(truth)
        left, right = islice(tensors_in(args, kwargs), 2)
        if left.shape != right.shape:
            return result and name != "equal"
        likely = likely_equal(name, shadows.known(left), shadows.known(right), left.dtype)
        return self.policy.truth(f"torch.{name}", likely, left)


def _kinds_of(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield the classes that are made of one."""
    for each in kind.__subclasses__():
        yield each
        yield from _kinds_of(each)


def _is_made(result: Any) -> bool:
    """Return whether a function has made a tensor on a GPU of none."""
    first = result[0] if isinstance(result, tuple | list) and result else result
    return isinstance(first, torch.Tensor) and first.is_cuda


@cache
def _is_random(name: str) -> bool:
    return any(part in name for part in _RANDOM)


def _changes(name: str, kwargs: Mapping[str, Any]) -> bool:
    """Return whether a function may change its arguments, by its name."""
    is_method = name.endswith("_") and not name.endswith("__")
    return is_method or name.startswith("__i") or name == "__setitem__" or "out" in kwargs


_OPERATORS = {
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "invert": "bitwise_not",
}


@cache
def _op_name(name: str) -> str:
    """Name the op that an operator's method calls: `__iand__` is bitwise_and_."""
    if not (name.startswith("__") and name.endswith("__")):
        return name
    plain = name.strip("_")
    in_place = plain.startswith("i") and plain != "invert"
    plain = plain.removeprefix("i") if in_place else plain
    return _OPERATORS.get(plain, plain) + "_" * in_place


def reads_by_line(reads: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """Order reads by line, as `Summary.value_reads` has them."""
    found: dict[str, dict[str, int]] = {}
    for (what, line), times in reads.items():
        found.setdefault(line, {})[what] = times
    return found
