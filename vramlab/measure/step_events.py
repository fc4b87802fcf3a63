"""What a rank does in a step, in order: operators, collectives, copies, and who waits for what.

    with record_events(layers={"1": model[0], "2": model[1]}) as events:
        model(x).sum().backward()
    put_in_time([events], Rates.of(card, "NVLink"))         # vramlab.measure.step_times

Nothing here is a time. Each event has the CUDA stream it was issued on, and what it takes: FLOPs,
bytes read and written, bytes sent. Streams wait for each other by `torch.cuda.Event`s, and for
collectives by `Work.wait()`; both are noted. DDP's reducer waits in C++, which no Python sees: so
an operator that touches what a collective writes waits for it, too.

Works on a virtual GPU and on a real one, in a world of processes and on a rank alone. torch's peak
counters start again at every event.

Known limitations: kernels of operators that PyTorch calls inside other operators are part of those;
copies between GPUs of one process are operators.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.torch_internals import (
    OpOverload,
    current_autograd_node,
    current_graph_task_id,
    get_sequence_nr,
    plain_name_of,
    script_type_of,
    sequence_number_of,
    storage_id,
    tree_leaves,
)
from vramlab.measure.collectives import collective_of
from vramlab.measure.op_observer import WatchOps
from vramlab.measure.operator_calls import call_of
from vramlab.measure.transfers import transfers_of

DEFAULT_STREAM = 0

WorkKind = Literal["operator", "collective", "send", "receive", "to GPU", "to host"]


@dataclass(frozen=True, slots=True)
class StepWork:
    """Something that a GPU or one of its links does."""

    kind: WorkKind
    """What does it: `operator` is computed, all others are carried by a link."""
    name: str
    """Such as 'aten.mm' or 'all-gather'."""
    label: str
    """The layer whose work it is, in backward, too; else the innermost `record_function`."""
    backward: bool
    """Whether it ran in a backward pass."""
    stream: int
    """On which it was issued: 0 is the default stream."""
    moved_bytes: int
    """Of an operator what it reads and writes, else what the link carries: of collectives what this
    rank sends around a ring."""
    flops: int = 0
    """Additions and multiplications, where torch counts them."""
    dtype: str | None = None
    """In which an operator computes."""
    peer: int | None = None
    """The rank that a send goes to or a receive comes from."""
    handle: int = -1
    """By which streams wait for it."""
    blocks: bool = False
    """Whether Python waits for it: copies that are not both pinned and non-blocking."""
    peak_bytes: int = 0
    """The most that was allocated since the event before, and while it ran."""
    after_bytes: int = 0
    """What was allocated when it was over."""


@dataclass(frozen=True, slots=True)
class StepMark:
    """A `torch.cuda.Event` that a stream records."""

    stream: int
    handle: int


@dataclass(frozen=True, slots=True)
class StepWait:
    """A stream, or Python, waits for a mark or for a collective."""

    stream: int | None
    """None: Python waits."""
    handle: int


StepEvent = StepWork | StepMark | StepWait


@contextmanager
def record_events(layers: Mapping[str, nn.Module] | None = None) -> Iterator[list[StepEvent]]:
    """Record what the body of the with statement does on the current GPU.

    Args:
        layers: modules whose work is labelled with these names, in forward and in backward.
    """
    patches = Patches()
    recorder = _Recorder(patches)
    hooks = []
    for name, layer in (layers or {}).items():
        begin, end = recorder.layer_hooks(name)
        hooks += [layer.register_forward_pre_hook(begin), layer.register_forward_hook(end)]
    recorder.hear_events()
    torch.cuda.reset_peak_memory_stats()
    try:
        with WatchOps(recorder.note):
            yield recorder.events
    finally:
        patches.undo()
        for hook in hooks:
            hook.remove()


class _Recorder:
    """Notes events in the order in which the program issues them."""

    def __init__(self, patches: Patches) -> None:
        self.events: list[StepEvent] = []
        self._patches = patches
        self._heard: set[type] = set()
        self._open: list[tuple[str, bool]] = []
        """Ranges and layers that have begun and not ended, and whether one of autograd's nodes
        began them."""
        self._numbers: list[tuple[range, str]] = []
        """Sequence numbers of autograd's nodes, by the layer that made them; inner layers first."""
        self._handles = itertools.count()
        self._handle_of: dict[int, tuple[int, Any]] = {}
        """By the identity of an event or a collective, with the object, so that it lives on."""
        self._writing: dict[Any, int] = {}
        """Handles of collectives, by the storage that they write, until something waits."""

    def note(
        self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Note an op that has run."""
        name = plain_name_of(func)
        if func.namespace == "profiler":
            self._note_range(name, args)
            return
        if (work := _work_of(func, name, args, kwargs, result)) is None:
            return
        stream = _number_of(None)
        leaves = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
        for leaf in leaves if work.kind == "operator" else ():
            if (handle := self._writing.pop(storage_id(leaf.untyped_storage()), None)) is not None:
                self.events.append(StepWait(stream, handle))
        if not work.moved_bytes:
            return
        allocated = torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]
        work = replace(
            work,
            label=self._label(),
            backward=current_graph_task_id() != -1,
            stream=stream,
            handle=next(self._handles),
            peak_bytes=allocated["peak"],
            after_bytes=allocated["current"],
        )
        torch.cuda.reset_peak_memory_stats()
        if work.kind in ("collective", "receive"):
            # The first argument of an op of c10d is what it writes.
            for leaf in tree_leaves(args[0] if func.namespace == "c10d" else result):
                if isinstance(leaf, Tensor):
                    self._writing[storage_id(leaf.untyped_storage())] = work.handle
        for leaf in tree_leaves(result):
            if (script_type_of(leaf) or "").endswith(".Work"):
                issued = dist.Work.unbox(leaf)
                self._hear_works(type(issued))
                self._handle_of[id(issued)] = work.handle, issued
        self.events.append(work)

    def layer_hooks(self, name: str) -> tuple[Any, Any]:
        """Return what is called before and after a layer's forward pass."""
        begun: list[int] = []

        def begin(*_: object) -> None:
            begun.append(get_sequence_nr())
            self._open.append((name, False))

        def end(*_: object) -> None:
            self._open.pop()
            self._numbers.append((range(begun.pop(), get_sequence_nr()), name))

        return begin, end

    def hear_events(self) -> None:
        """Hear of every `torch.cuda.Event` that is recorded or waited for."""
        kind = torch.cuda.Event
        record, await_, synchronize = kind.record, kind.wait, kind.synchronize

        def record_in(event: Any, stream: Any = None) -> None:
            handle = next(self._handles)
            self._handle_of[id(event)] = handle, event
            self.events.append(StepMark(_number_of(stream), handle))
            record(event, *([] if stream is None else [stream]))

        def wait_in(event: Any, stream: Any = None) -> None:
            self._note_wait(_number_of(stream), event)
            await_(event, *([] if stream is None else [stream]))

        def wait_here(event: Any) -> None:
            self._note_wait(None, event)
            synchronize(event)

        for name, heard in (("record", record_in), ("wait", wait_in), ("synchronize", wait_here)):
            self._patches.set(kind, name, heard)

    def _hear_works(self, kind: type) -> None:
        """Hear of every `Work.wait()` of a kind of process group."""
        owner = next(each for each in kind.__mro__ if "wait" in vars(each))
        if owner in self._heard:
            return
        self._heard.add(owner)
        wait = vars(owner)["wait"]

        def wait_for(work: dist.Work, *args: Any, **kwargs: Any) -> Any:
            self._note_wait(_number_of(None), work)
            self._handle_of.pop(id(work), None)  # it would keep its tensors alive
            return wait(work, *args, **kwargs)

        self._patches.set(owner, "wait", wait_for)

    def _note_wait(self, stream: int | None, awaited: Any) -> None:
        if (known := self._handle_of.get(id(awaited))) is None:
            return  # from before the recording began
        self._writing = {key: each for key, each in self._writing.items() if each != known[0]}
        self.events.append(StepWait(stream, known[0]))

    def _note_range(self, name: str, args: Sequence[Any]) -> None:
        if name.endswith("_enter_new"):
            self._open.append((args[0], current_autograd_node() is not None))
        elif self._open:
            self._open.pop()

    def _label(self) -> str:
        """Return whose work is done right now."""
        name, of_node = self._open[-1] if self._open else ("", False)
        node = current_autograd_node()
        if node is None or of_node:
            return name
        number = sequence_number_of(node)
        return next((layer for numbers, layer in self._numbers if number in numbers), name)


def _number_of(stream: Any) -> int:
    """Return the number of a stream; None is the current one."""
    return int((torch.cuda.current_stream() if stream is None else stream).stream_id)


def _work_of(
    func: OpOverload, name: str, args: Sequence[Any], kwargs: dict[str, Any], result: Any
) -> StepWork | None:
    """Describe what an op does, but for when it was issued; None if it is not for the GPU."""

    def work(kind: WorkKind, name: str, moved_bytes: int, **others: Any) -> StepWork:
        return StepWork(kind, name, "", False, DEFAULT_STREAM, moved_bytes, **others)

    if (collective := collective_of(func, args, kwargs, result)) is not None:
        return work("collective", collective.kind, collective.sent_bytes)
    if func.namespace == "c10d":
        if name not in ("send", "recv_"):
            return None
        kind: WorkKind = "send" if name == "send" else "receive"
        size_bytes = sum(tensor.numel() * tensor.dtype.itemsize for tensor in args[0])
        return work(kind, kind, size_bytes, peer=int(args[2]))
    if copies := list(transfers_of(func, args, kwargs, result)):
        size_bytes = sum(copy.size_bytes for copy in copies)
        blocks = not all(copy.non_blocking for copy in copies)
        return work(copies[0].direction, copies[0].direction, size_bytes, blocks=blocks)
    call = call_of(func, args, kwargs, result)
    name = f"{func.namespace}.{func.overloadpacket.__name__}"
    return work("operator", name, call.moved_bytes, flops=call.flops or 0, dtype=call.dtype)
