"""The table of ops: one record for each, which says all that it meets on a virtual GPU.

A record is filled where its parts are written, by name, so that an op which the installed PyTorch
does not have costs nothing and breaks nothing (`OPS.missing()` lists those):

    @handler("aten.index.Tensor", "aten._unsafe_index.Tensor")
    def index(dispatcher, func, args, kwargs): ...

    op("aten.zeros_like.default", fill=lambda args: 0)
    op("aten.conv1d.default", autocast=AutocastPolicy.LOWER_PRECISION)

`OPS[func]` is the record of an overload; names are resolved when an op is first met. `vramlab rules
aten.index` prints it. The modules of `vramlab.gpu.ops` fill the table; the core imports none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, Unpack

import torch
from torch import Tensor

from vramlab.gpu.core.tensors import tensors_in
from vramlab.gpu.torch_internals import DispatchKey, OpOverload, schema_of
from vramlab.kernels import TABLE, Rule
from vramlab.kernels.rule_table.registry import overloads

if TYPE_CHECKING:
    from vramlab.gpu.core.dispatcher import Dispatcher

Handler = Callable[["Dispatcher", OpOverload, tuple[Any, ...], dict[str, Any]], Any]
Check = Callable[..., None]
Layout = Callable[[Sequence[Any], Any], Any]
MakeOutputs = Callable[..., tuple[Tensor, ...]]
Fill = Callable[[Sequence[Any]], Any]
CudaPath = Callable[..., Any]

F = TypeVar("F", bound=Callable[..., Any])


class AutocastPolicy(Enum):
    """What `torch.autocast("cuda")` does with an op's operands on a GPU."""

    LOWER_PRECISION = "casts them to autocast's dtype"
    FLOAT32 = "casts them to float32"
    FLOAT32_OUTPUT = "leaves them, and asks for a result in float32 unless a dtype is given"
    NORM = "leaves them, and calls the form of the op that answers in float32"
    PROMOTE = "casts them to the widest dtype among them"
    BANNED = "refuses the op"


class Parts(TypedDict, total=False):
    """What a record is filled with: attributes of `OpSpec`."""

    handler: Handler
    check: Check
    layout: Layout
    make_outputs: MakeOutputs
    fill: Fill
    cuda_path: CudaPath
    cuda_kernel: Callable[..., Any]
    made_of: Callable[..., Any]
    autocast: AutocastPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSpec:
    """What is known of an op before it is called.

    Attributes:
        name: with namespace and overload, such as "aten.index.Tensor".
        handler: runs instead of everything else.
        check: refuses operands that CUDA's kernel refuses and the meta kernel lets pass; called
            with the op's positional arguments.
        layout: lays the meta kernel's result out as CUDA does, from the op's positional arguments
            and that result.
        make_outputs: makes outputs without values if the op has no meta kernel, or if only
            values tell the shape (then the largest there can be); called with the op's arguments.
        fill: from a factory's arguments to the value that it fills a tensor with.
        cuda_path: what the op does on CUDA where it does something else on other devices, above
            autograd; called with a `PathContext` and the op's arguments.
        cuda_kernel: makes the outputs of an op that is one kernel on CUDA and is taken apart
            elsewhere.
        made_of: runs the ops that CUDA makes this one of, below autograd; called with the op's
            arguments.
        autocast: what `torch.autocast("cuda")` does with its operands.
        rule: what its kernel takes beyond its outputs.
        creates: a factory: it takes a `device`, and no tensor decides where it runs.
        resizes: an argument's storage may grow (`out=`, `resize_`, `set_`).
        skips: changes values only and has none of its own to return: nothing to do without values.
        base_name: without namespace and overload, such as "index".
        written: the arguments that it writes to: position and name.
        computes: its results are decided by its operands' values alone: no view, nothing random.
        draws: it draws random numbers.
        is_composite: it consists of other ops, has no handler, and its allocations are theirs.
    """

    name: str
    handler: Handler | None = None
    check: Check | None = None
    layout: Layout | None = None
    make_outputs: MakeOutputs | None = None
    fill: Fill | None = None
    cuda_path: CudaPath | None = None
    cuda_kernel: Callable[..., Any] | None = None
    made_of: Callable[..., Any] | None = None
    autocast: AutocastPolicy | None = None
    rule: Rule | None = None
    creates: bool = False
    resizes: bool = False
    skips: bool = False
    base_name: str = ""
    written: tuple[tuple[int, str], ...] = ()
    computes: bool = False
    draws: bool = False
    is_composite: bool = False

    @property
    def parts(self) -> dict[str, Any]:
        """The parts that the record was filled with, by the names of its attributes."""
        filled = {name: getattr(self, name) for name in Parts.__annotations__}
        return {name: part for name, part in filled.items() if part is not None}


class OpTable(dict[OpOverload, OpSpec]):
    """The records of the ops that have been met; `table[func]` makes that of another one."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: dict[str, Parts] = {}

    def op(self, *names: str, **parts: Unpack[Parts]) -> None:
        """Fill the records of ops with these parts.

        Args:
            names: of overloads, such as "aten.index.Tensor"; whether PyTorch has them or not.
            parts: attributes of `OpSpec`.

        Raises:
            ValueError: a name without an overload, or a record that has such a part already.
        """
        self.clear()
        for name in names:
            if name.count(".") != 2:
                raise ValueError(f'{name!r} is no overload: write it like "aten.index.Tensor"')
            filled = self._parts.setdefault(name, {})
            if twice := filled.keys() & parts.keys():
                raise ValueError(f"{name} has two parts of a kind ({', '.join(twice)}): keep one")
            filled.update(parts)

    def __missing__(self, func: OpOverload) -> OpSpec:
        schema = schema_of(func)
        mutates = any(is_written(argument) for argument in schema.arguments)
        name = schema.name.removeprefix("aten::")
        parts = self._parts.get(str(func), {})
        spec = self[func] = OpSpec(
            name=str(func),
            rule=TABLE.find(func),
            creates=any(argument.name == "device" for argument in schema.arguments),
            resizes=name in ("resize_", "set_", "resize_as_")
            or any(argument.is_out for argument in schema.arguments),
            skips=mutates and name.startswith(("_foreach_", "_fused_")) and not schema.returns,
            base_name=schema.name.rpartition("::")[2],
            written=tuple(
                (at, each.name) for at, each in enumerate(schema.arguments) if is_written(each)
            ),
            computes=_computes(func),
            draws=torch.Tag.nondeterministic_seeded in func.tags,
            is_composite="handler" not in parts and _is_composite(func),
            **parts,
        )
        return spec

    def having(self, part: str) -> Iterable[tuple[OpOverload, OpSpec]]:
        """Yield the ops of this PyTorch whose records were filled with a part of that name."""
        for name, parts in list(self._parts.items()):
            if part in parts:
                for func in overloads(name):
                    yield func, self[func]

    def missing(self) -> list[str]:
        """Name the ops of the table that the installed PyTorch does not have."""
        return sorted(name for name in self._parts if not any(overloads(name)))


class Decorator(Protocol):
    """Enters the decorated function in the records of some ops, as one of their parts."""

    def __call__(self, *names: str) -> Callable[[F], F]: ...


def _decorator(part: str) -> Decorator:
    def of(*names: str) -> Callable[[F], F]:
        def enter(function: F) -> F:
            parts: Any = {part: function}
            OPS.op(*names, **parts)
            return function

        return enter

    return of


def _is_composite(func: OpOverload) -> bool:
    """Return whether C++ has one function for all devices, and none of the CPU's own."""
    return (
        func.namespace != "prim"  # questions to a tensor; C++ has no functions for them
        and func.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)
        and not func.has_kernel_for_dispatch_key(DispatchKey.CPU)
    )


def _computes(func: OpOverload) -> bool:
    """Return whether what an op returns and writes is decided by its operands' values alone."""
    schema = schema_of(func)
    name = schema.name.rpartition("::")[2]
    return (
        func.namespace in _COMPUTING
        and not any(word in name for word in _NOT_COMPUTED)
        and _IRREGULAR.isdisjoint(func.tags)
        and all(each.alias_info is None or is_written(each) for each in schema.returns)
    )


_COMPUTING = ("aten", "prims", "torchvision")
_IRREGULAR = {torch.Tag.nondeterministic_seeded, torch.Tag.inplace_view}
_NOT_COMPUTED = ("empty", "resize", "set_")


def written_by(spec: OpSpec, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """Yield the tensors that a call of an op writes to."""
    for at, name in spec.written:
        yield from tensors_in((args[at] if at < len(args) else kwargs.get(name),))


def is_written(argument: Any) -> bool:
    """Return whether an op writes to an argument of its schema."""
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


OPS = OpTable()
"""The one table of all virtual GPUs."""

op = OPS.op
handler = _decorator("handler")
check = _decorator("check")
layout = _decorator("layout")
make_outputs = _decorator("make_outputs")
cuda_path = _decorator("cuda_path")
cuda_kernel = _decorator("cuda_kernel")
made_of = _decorator("made_of")
