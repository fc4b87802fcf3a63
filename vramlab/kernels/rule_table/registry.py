"""The table of rules: what a CUDA kernel takes from the caching allocator inside one ATen op.

A dispatch mode sees an op's outputs and nothing of what its kernel allocates and frees in between:
a clone of an operand, a staging buffer, a workspace. A rule says so, as a sequence of steps in the
order in which the kernel asks the allocator, because the order decides which blocks are used:

    Take(4096, "staging buffer")    a temporary; held until its Give or, without one, the op's end
    Give("staging buffer")          given back before the op ends
    Output(0)                       the op's output 0 is allocated here
    OUTPUTS                         every output not yet named is allocated here, in order
    CUBLAS, CUBLASLT                the library's workspace is needed here (see cublas.py)
    Convolve(convolution)           cuDNN computes here (see vramlab.cudnn.plans)

A rule is a plain function of the call and of the op's own arguments, under the op's own names:

    @rule("aten.mm.default", takes="...", source="...")
    def mm(call: Call, self: Tensor, mat2: Tensor) -> Iterable[Step]: ...

`RuleTable.find` is one dictionary look-up, so that an op without a rule costs nothing. `replay`
defines what the steps mean; its caller (the dispatch mode, a test) passes an `Allocates`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeVar

import torch

from vramlab.cuda_rules.gpu_facts import CudaGpuFacts
from vramlab.cudnn.problems import Convolution
from vramlab.gpu.torch_internals import OpOverload, OpOverloadPacket


class Status(Enum):
    """How sure a rule is. The order of truth is recording, published figure, source."""

    RECORDED = "equal to a recording from a real GPU"
    PUBLISHED = "confirmed by a published figure"
    FROM_SOURCE = "read from PyTorch's source, not yet confirmed on a GPU"


@dataclass(frozen=True)
class KernelContext:
    """Where an op runs.

    Attributes:
        model: the GPU.
        torch_version: (major, minor) whose kernels are meant.
        environment: the environment variables that kernels read (CUBLAS_WORKSPACE_CONFIG, ...).
        cublas_workspace_bytes: set by `torch.backends.cuda.cublas_workspace_size`, or None.
        cublaslt_workspace_bytes: set by `torch.backends.cuda.cublaslt_workspace_size`, or None.
        is_capturing: reports whether a CUDA graph is captured on the current stream.
    """

    model: CudaGpuFacts
    torch_version: tuple[int, int]
    environment: Mapping[str, str] = field(default_factory=dict)
    cublas_workspace_bytes: int | None = None
    cublaslt_workspace_bytes: int | None = None
    is_capturing: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Call:
    """One call of an op, as a rule sees it.

    Attributes:
        context: where it runs.
        func: the overload.
        outputs: its tensors in the schema's order, lists flattened and numbers left out; None for
            a result that the op leaves undefined.
    """

    context: KernelContext
    func: OpOverload
    outputs: Sequence[torch.Tensor | None]


@dataclass(frozen=True)
class Take:
    """A temporary is taken. Nothing is taken of zero bytes, as in the caching allocator."""

    size_bytes: int
    what: str


@dataclass(frozen=True)
class Give:
    """The temporary of that name, or the newest of several of that name, is given back."""

    what: str


@dataclass(frozen=True)
class Output:
    """Output `index` is allocated.

    Attributes:
        index: its place among the outputs.
        storage_bytes: the size of its storage where that is not what the meta kernel says (the
            CUDA kernel returns a view of something larger), else None.
    """

    index: int
    storage_bytes: int | None = None


@dataclass(frozen=True)
class Convolve:
    """cuDNN computes: PyTorch chooses one of its plans, and allocates a workspace while it runs.

    Attributes:
        convolution: what is computed.
        benchmark: `torch.backends.cudnn.benchmark`.
    """

    convolution: Convolution
    benchmark: bool


class Marker(Enum):
    """Steps without an argument."""

    OUTPUTS = "every output not yet named is allocated, in order"
    CUBLAS = "the cuBLAS handle is used: its workspace is there from now on"
    CUBLASLT = "the cuBLASLt workspace is used: kept in some versions, taken per call in others"


OUTPUTS = Marker.OUTPUTS
CUBLAS = Marker.CUBLAS
CUBLASLT = Marker.CUBLASLT

Step = Take | Give | Output | Convolve | Marker
RuleFunction = Callable[..., Iterable[Step]]
F = TypeVar("F", bound=RuleFunction)


@dataclass(frozen=True)
class Rule:
    """One line of the table.

    Attributes:
        ops: the names it was written for: "aten.mm.default", or "aten.mm" for every overload.
        function: (call, *the op's arguments) -> steps.
        takes: in words, for the printed table.
        source: the file of PyTorch it was read from, and the version.
        status: how sure it is.
    """

    ops: tuple[str, ...]
    function: RuleFunction
    takes: str
    source: str
    status: Status

    def steps(
        self,
        context: KernelContext,
        func: OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        outputs: Sequence[torch.Tensor | None],
    ) -> Iterable[Step]:
        """Say, in order, what this call asks the allocator for."""
        return self.function(Call(context, func, outputs), *args, **kwargs)


class RuleTable:
    """Rules by overload. Names are resolved at the first look-up, not at import."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self._by_overload: dict[OpOverload, Rule] | None = None
        self._not_there_yet: dict[str, Rule] = {}

    def rule(
        self, *ops: str, takes: str, source: str, status: Status = Status.RECORDED
    ) -> Callable[[F], F]:
        """Register the decorated function as the rule of `ops`.

        Args:
            ops: names of ops.
            takes: in words, for the printed table.
            source: the file of PyTorch it was read from, and the version.
            status: how sure it is; tests compare RECORDED with the recordings.
        """

        def register(function: F) -> F:
            self.rules.append(Rule(ops, function, takes, source, status))
            self._by_overload = None
            return function

        return register

    def surest_first(self) -> list[Rule]:
        """List every rule, the surest first, then by name."""
        surest = list(Status)
        return sorted(self.rules, key=lambda rule: (surest.index(rule.status), rule.ops))

    def find(self, func: OpOverload) -> Rule | None:
        """Return the rule of an overload, or None."""
        if self._by_overload is None:
            self._by_overload = self._resolve()
        # Some come with a package that was imported since, such as FSDP's.
        return self._by_overload.get(func) or self._not_there_yet.get(str(func))

    def _resolve(self) -> dict[OpOverload, Rule]:
        by_overload: dict[OpOverload, Rule] = {}
        for entry in self.rules:
            for name in entry.ops:
                there = tuple(overloads(name))
                if not there:
                    self._not_there_yet[name] = entry
                for overload in there:
                    if overload in by_overload:
                        raise ValueError(f"two rules for {overload}: keep one")
                    by_overload[overload] = entry
        return by_overload


def overloads(name: str) -> Iterator[OpOverload]:
    """Yield the overloads that a name stands for; none where this torch does not have the op.

    "aten.mm.default" is one overload, "aten.mm" every overload of it.
    """
    namespace, _, rest = name.partition(".")
    packet_name, _, overload_name = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), packet_name, None)
    if not isinstance(packet, OpOverloadPacket):
        return
    names: Any = packet
    for each in names.overloads():
        if overload_name in ("", each):
            yield getattr(packet, each)


def freed_after(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps of an op inside another, and free the temporaries it still has at its end."""
    held: list[str] = []
    for step in steps:
        if isinstance(step, Take) and step.size_bytes:
            held.append(step.what)
        elif isinstance(step, Give) and step.what in held:
            held.reverse()
            held.remove(step.what)
            held.reverse()
        yield step
    yield from map(Give, reversed(held))


class Allocates(Protocol):
    """Who carries out the steps. Handles are opaque to `replay`."""

    def take(self, size_bytes: int, what: str) -> Any: ...

    def give(self, handle: Any) -> None: ...

    def output(self, index: int, storage_bytes: int | None) -> None: ...

    def workspace(self, library: Marker) -> None: ...

    def convolve(self, step: Convolve) -> None: ...


def replay(steps: Iterable[Step], output_count: int, target: Allocates) -> None:
    """Carry out `steps` on `target`, which knows which outputs exist already or are undefined.

    Outputs that no step names are allocated at the end of the steps, before temporaries are given
    back; temporaries without a Give are given back last taken first, as C++ destroys locals. They
    are given back also when a take or an output runs out of memory.
    """
    held: list[tuple[str, Any]] = []
    waiting = list(range(output_count))
    try:
        for step in steps:
            if isinstance(step, Take):
                if step.size_bytes:
                    held.append((step.what, target.take(step.size_bytes, step.what)))
            elif isinstance(step, Give):
                newest = max(
                    (at for at, (what, _) in enumerate(held) if what == step.what), default=None
                )
                if newest is not None:  # none: it was of zero bytes
                    target.give(held.pop(newest)[1])
            elif isinstance(step, Output):
                waiting.remove(step.index)
                target.output(step.index, step.storage_bytes)
            elif step is OUTPUTS:
                while waiting:
                    target.output(waiting.pop(0), None)
            elif isinstance(step, Convolve):
                target.convolve(step)
            else:
                target.workspace(step)
        while waiting:
            target.output(waiting.pop(0), None)
    finally:
        for _, handle in reversed(held):
            target.give(handle)


TABLE = RuleTable()
rule = TABLE.rule
