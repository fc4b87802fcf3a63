"""What autograd keeps for a backward pass, read from its graph and told while a program runs.

A `GraphObserver` that is added here is called with every tensor that autograd has saved, at the
moments at which that is known:

- when a backward pass begins, also one inside of another (a reentrant checkpoint): the graph is
  walked from the tensors that it begins at;
- when a hook for saved tensors packs one or unpacks one: what a checkpoint computes again, what
  save_on_cpu() brings back.

A graph that no backward pass has begun on is read by `saved_in(tensors)`.

Nothing is kept alive, and nothing is unpacked: what an op has saved is read as SavedTensor.data,
which is what its hook packed where there is one. Source: torch/csrc/autograd/init.cpp in PyTorch
2.13.

Known limitations: nodes inside of an in-place op on a view (CopySlices) cannot be walked.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple, Protocol

import torch
from torch.autograd.graph import GradientEdge

from vramlab.gpu.torch_internals import (
    DisableTorchFunction,
    Replaced,
    push_saved_tensors_hooks,
    storage_address,
)
from vramlab.measure.tensors import plain_tensors
from vramlab.source_files import CodeOwner, owner_of

_SAVED = "_raw_saved_"
_DEPTH = 3
"""How deep a variable is searched for tensors: lists and mappings in it, attributes of objects."""
_ITEMS = 1024
"""How many items of one list or mapping are looked at."""


class GraphObserver(Protocol):
    """Who wants to know what autograd saves."""

    def wants_saved(self) -> bool:
        """Return whether it wants to hear of what the backward pass that begins needs."""

    def saved(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Hear of tensors that a backward pass needs, each with the name of its op."""

    def backward_begins(self, roots: Sequence[Any], *how: Any, **named: Any) -> None:
        """Hear that an outermost backward pass begins, after `saved`.

        Args:
            roots: tensors and `GradientEdge`s that it begins at.
            how, named: what else PyTorch calls its engine with. Source:
                torch/autograd/graph.py:_engine_run_backward in PyTorch 2.13.
        """

    def backward_ended(self) -> None:
        """Hear that it is over, whether or not it raised."""


Root = torch.Tensor | GradientEdge
"""What a backward pass begins at: a tensor, or the place in the graph that one came from. PyTorch's
pipelining keeps only that of an output that was sent, from 2.15 on."""


def node_of(root: Root) -> Any:
    """Return the node of the graph that a root came from; None if it has no graph."""
    return root.node if isinstance(root, GradientEdge) else root.grad_fn


def nodes_of(roots: Iterable[Root]) -> Iterator[Any]:
    """Yield every node of the graph that leads to some roots, each once, theirs first."""
    waiting = [node_of(root) for root in roots]
    met = set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in met:
            met.add(node)
            yield node
            waiting += [before for before, _ in node.next_functions]


def kept_by(node: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what one node keeps, as (what the op calls it, tensor); nothing once it has run."""
    kind = _kind_of(node)
    for name in kind.saved:
        try:
            saved = getattr(node, name)
        except RuntimeError:
            continue  # it has run backward and let go
        for one in saved if isinstance(saved, (list, tuple)) else (saved,):
            for tensor in _tensors_in(getattr(one, "data", None)):
                yield name.removeprefix(_SAVED), tensor
    if kind.has_attributes:
        for name, value in vars(node).items():  # ctx.x = x in a custom function
            for tensor in _tensors_in(value):
                yield name, tensor


def storages_of(tensor: torch.Tensor) -> Iterator[int]:
    """Yield a number for each storage that stands behind a tensor."""
    is_plain = type(tensor) in _PLAIN_TENSORS and tensor.layout is torch.strided
    for plain in (tensor,) if is_plain else plain_tensors(tensor):
        try:
            yield storage_address(plain)
        except (NotImplementedError, RuntimeError):  # a layout that has none
            continue


def saved_in(roots: Iterable[Root]) -> list[tuple[str, torch.Tensor]]:
    """Return what the graph of some roots keeps for backward: (name of the op, tensor).

    Leaves of the graph (parameters, also those that FSDP has gathered) are left out, although ops
    save them: who trains them keeps them. So are tensors that a hook has packed away.
    """
    leaves: set[int] = set()
    found: dict[int, tuple[str, torch.Tensor]] = {}
    with DisableTorchFunction():
        for node in nodes_of(roots):
            if _kind_of(node).is_leaf:
                leaves.update(storages_of(node.variable))
                continue
            for _, tensor in kept_by(node):
                for key in storages_of(tensor):
                    found.setdefault(key, (node.name(), tensor))
    return [entry for key, entry in found.items() if key not in leaves]


def roots_of_callers() -> list[Root]:
    """Return the tensors and edges with a graph that variables of the running code lead to.

    Every thread's frames are searched from the innermost one to the outermost of the program, and
    those of an exception that is being handled; in them lists, tuples, mappings, and the attributes
    of objects. What started the program, such as Jupyter or pytest, holds none of its tensors, but
    very many objects.
    """
    innermost = sys._current_frames()
    # This function's own frame would keep itself alive, and with it all that it finds.
    innermost[threading.get_ident()] = sys._getframe(1)
    frames = [frame for inner in innermost.values() for frame in _frames_of_program(inner)]
    error = sys.exception()
    trace = None if error is None else error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    values = [value for frame in frames for value in _variables(frame)]
    search = _Search()
    with DisableTorchFunction():
        for value in values:
            search.look_into(value)
        found = {id(root): root for root in search.found if node_of(root) is not None}
    return list(found.values())


def _frames_of_program(innermost: FrameType) -> list[FrameType]:
    """Return a thread's frames up to the outermost of the program; all if none is the program's."""
    frames, length = [], 0
    frame: FrameType | None = innermost
    while frame is not None:
        frames.append(frame)
        if owner_of(frame.f_code.co_filename) is CodeOwner.PROGRAM:
            length = len(frames)
        frame = frame.f_back
    return frames[: length or None]


def add_observer(observer: GraphObserver) -> None:
    """Tell an observer of what is saved, from now on."""
    if not _observers:
        _replace(Replaced.ENGINE_OF_AUTOGRAD.at, _telling_of_backward)
        _replace(Replaced.ENGINE_OF_GRAPH.at, _telling_of_backward)
        _replace((torch.autograd.graph.saved_tensors_hooks, "__enter__"), lambda _: _enter_hooks)
    _observers.append(observer)


def remove_observer(observer: GraphObserver) -> None:
    """Tell it no more."""
    _observers.remove(observer)
    while not _observers and _replaced:
        owner, name, before, ours = _replaced.pop()
        if vars(owner).get(name) is ours:  # otherwise other code has replaced it since
            setattr(owner, name, before)


class _Thread(threading.local):
    """What one thread is doing."""

    depth: int = 0  # backward passes that run inside of each other


_observers: list[GraphObserver] = []
_replaced: list[tuple[Any, str, Any, Any]] = []
"""(object, name, what was there, what is there now)"""
_thread = _Thread()


def _replace(place: tuple[Any, str], wrap: Callable[[Any], Any]) -> None:
    owner, name = place
    before = vars(owner)[name]
    ours = wrap(before)
    setattr(owner, name, ours)
    _replaced.append((owner, name, before, ours))


def _tell(tensors: Iterable[tuple[str, torch.Tensor]], observers: Iterable[GraphObserver]) -> None:
    known = list(tensors)
    for observer in observers:
        observer.saved(known)


def _telling_of_backward(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function that runs autograd's engine; its first argument is where it begins."""

    @functools.wraps(run)
    def tell_and_run(roots: Any, *args: Any, **kwargs: Any) -> Any:
        if wanting := [observer for observer in _observers if observer.wants_saved()]:
            _tell(saved_in(root for root in roots if isinstance(root, Root)), wanting)
        is_outermost = _thread.depth == 0
        _thread.depth += 1
        try:
            if is_outermost:
                for observer in _observers:
                    observer.backward_begins(roots, *args, **kwargs)
            return run(roots, *args, **kwargs)
        finally:
            _thread.depth -= 1
            if is_outermost:
                for observer in _observers:
                    observer.backward_ended()

    return tell_and_run


def _enter_hooks(hooks: Any) -> None:
    """Stand in for saved_tensors_hooks.__enter__: the hooks work as ever, and are listened to."""

    def pack(tensor: torch.Tensor) -> Any:
        packed = hooks.pack_hook(tensor)
        if _observers:
            _tell((("packed", kept) for kept in _tensors_in(packed)), _observers)
        return packed

    def unpack(packed: Any) -> torch.Tensor:
        tensor: torch.Tensor = hooks.unpack_hook(packed)
        if _observers:
            _tell([("unpacked", tensor)], _observers)
        return tensor

    push_saved_tensors_hooks(pack, unpack)


_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)


class _Kind(NamedTuple):
    """What nodes of one type have; each C++ node has a type of its own."""

    saved: tuple[str, ...]  # attributes that hold what it saves
    is_leaf: bool  # an AccumulateGrad
    has_attributes: bool


_kinds: dict[type, _Kind] = {}


def _kind_of(node: Any) -> _Kind:
    kind = type(node)
    if (found := _kinds.get(kind)) is None:
        saved = tuple(name for name in dir(kind) if name.startswith(_SAVED))
        is_leaf = "variable" in vars(kind)
        found = _kinds[kind] = _Kind(saved, is_leaf, bool(kind.__dictoffset__))
    return found


_NOT_SEARCHED = (str, bytes, int, float, type, ModuleType, FunctionType, torch.nn.Module)

_PLAIN = frozenset((str, int, bool, float, type(None)))
"""What most variables are."""

_OURS = ("vramlab.allocator.", "vramlab.gpu.", "vramlab.measure.", "vramlab.report.")
"""Where classes are whose objects hold much, and nothing of the program's graphs."""


class _Search:
    """A search for tensors and edges: values, what lists and mappings hold, attributes of objects.

    The values have to stay while it goes on: what was searched is known by its id. A notebook holds
    very many, so a type is looked at once. No longer than the search lasts: a type may hold
    tensors, too.
    """

    def __init__(self) -> None:
        self.found: list[Root] = []
        self._depths: dict[int, int] = {}  # by id, how deep an object was searched
        self._parts_of: dict[type, Callable[[Any], Iterable[Any]] | None] = {}

    def look_into(self, value: Any, depth: int = _DEPTH) -> None:
        """Search a value as deep as is said; what is found is in `found`."""
        if isinstance(value, Root):
            self.found.append(value)
            return
        kind = type(value)
        if kind not in self._parts_of:
            self._parts_of[kind] = _parts_of(kind)
        parts = self._parts_of[kind]
        if parts is not None and depth and self._depths.get(id(value), 0) < depth:
            self._depths[id(value)] = depth
            for item in itertools.islice(parts(value), _ITEMS):
                if type(item) not in _PLAIN and (depth > 1 or isinstance(item, Root)):
                    self.look_into(item, depth - 1)


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):  # as nearly always: this is asked of all that is saved
        return [value]
    search = _Search()
    search.look_into(value)
    return [found for found in search.found if isinstance(found, torch.Tensor)]


def _parts_of(kind: type) -> Callable[[Any], Iterable[Any]] | None:
    """Return the function that yields the parts of a type's objects; None without tensors."""
    if issubclass(kind, dict):
        return _values
    if issubclass(kind, (list, tuple)):
        return iter
    if issubclass(kind, _NOT_SEARCHED) or kind.__module__.startswith(_OURS):
        return None
    return _attributes


def _values(value: dict[Any, Any]) -> Iterable[Any]:
    return list(value.values())


def _attributes(value: Any) -> Iterator[Any]:
    yield from list(getattr(value, "__dict__", {}).values())
    for name in getattr(type(value), "__slots__", ()):
        yield getattr(value, name, None)


def _variables(frame: FrameType) -> list[Any]:
    """Return the values of a frame's local variables.

    CPython up to 3.12 keeps the dictionary that it makes of a function's variables, and with it
    what they held, until the function returns. So it is emptied here.
    """
    space = frame.f_locals
    values = list(space.values())
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(space, dict):
        space.clear()
    return values
