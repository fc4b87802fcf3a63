"""The graph of one result, as data: its ops in the order of the forward pass, and what each saves.

    y = model(x)
    graph = autograd_graph(y.sum(), model=model, inputs=x)
    graph.kept_bytes             # what would not live without the backward pass
    graph.ops[0].saved           # (what the op calls it, bytes, parameter, input or activation)

Call it before the backward pass, which frees the saved tensors. Works on any GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from vramlab.categories import Category
from vramlab.gpu.torch_internals import DisableTorchFunction
from vramlab.measure.graph import kept_by, storages_of
from vramlab.measure.tensors import named_tensors

_ONLY_VIEWS = (
    "ExpandBackward0",
    "TBackward0",
    "TransposeBackward0",
    "UnsafeViewBackward0",
    "ViewBackward0",
)


@dataclass(frozen=True)
class SavedPart:
    """One storage that an op saves."""

    saved_as: str
    """What the op calls it: 'self', 'result', 'mat1', ..."""
    size_bytes: int
    """Of the whole storage."""
    category: Category
    """Parameters, inputs or activations."""
    name: str
    """The parameter's or input's name; '' for an activation."""
    again: bool = False
    """Whether an op before saves the same storage."""


@dataclass(frozen=True)
class GraphOp:
    """One node of the graph."""

    name: str
    """Such as 'Relu': the node is called ReluBackward0."""
    sources: tuple[int, ...]
    """Which ops made what it takes, by their place in `AutogradGraph.ops`."""
    saved: tuple[SavedPart, ...]


@dataclass(frozen=True)
class AutogradGraph:
    """What backward will walk, from its last op to its first."""

    ops: tuple[GraphOp, ...]
    """In the order of the forward pass."""

    @property
    def kept_bytes(self) -> int:
        """Bytes of activations, each storage once."""
        return sum(
            part.size_bytes
            for op in self.ops
            for part in op.saved
            if part.category is Category.ACTIVATIONS and not part.again
        )

    def folded(self) -> AutogradGraph:
        """Leave out what saves nothing between two ops, and join what is left."""
        stands_for: list[tuple[int, ...]] = []
        ops: list[GraphOp] = []
        for place, op in enumerate(self.ops):
            sources = tuple(sorted({new for old in op.sources for new in stands_for[old]}))
            is_last = place == len(self.ops) - 1
            if op.saved or is_last or len(sources) != 1:
                stands_for.append((len(ops),))
                ops.append(replace(op, sources=sources))
            else:
                stands_for.append(sources)
        return AutogradGraph(tuple(ops))


def autograd_graph(
    result: torch.Tensor, model: torch.nn.Module | None = None, inputs: Any = ()
) -> AutogradGraph:
    """Read the graph of a result.

    Leaves are left out, and so are views that save nothing: their ends are joined.

    Args:
        result: such as a loss.
        model: its parameters and buffers are named.
        inputs: a tensor, or tensors in lists, tuples and dicts, that the program holds anyway.

    Raises:
        ValueError: the result has no graph.
    """
    if result.grad_fn is None:
        raise ValueError("the result has no graph: was it computed without gradients?")
    with DisableTorchFunction():
        owners = _owners(model, inputs)
        nodes = _in_forward_order(result.grad_fn)
        saved = {node: _saved(node, owners) for node in nodes}
        shown = [node for node in nodes if not _is_passed_over(node, saved[node])]
        places = {node: place for place, node in enumerate(shown)}
        met: set[int] = set()
        ops = []
        for node in shown:
            parts = []
            for key, part in saved[node].items():
                again = key in met
                met.add(key)
                parts.append(replace(part, again=again))
            ops.append(GraphOp(_short(node.name()), _sources(node, places), tuple(parts)))
    return AutogradGraph(tuple(ops))


_Owners = dict[int, tuple[Category, str]]


def _owners(model: torch.nn.Module | None, inputs: Any) -> _Owners:
    owners: _Owners = {}
    held = [] if model is None else [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in held:
        owners.update(dict.fromkeys(storages_of(tensor), (Category.PARAMETERS, name)))
    for name, tensor in named_tensors(inputs, "input", number_alone=False):
        owners.update(dict.fromkeys(storages_of(tensor), (Category.INPUTS, name)))
    return owners


def _in_forward_order(last: Any) -> list[Any]:
    """Nodes after all that they take from: a depth-first walk, left without recursion."""
    order: list[Any] = []
    met: set[Any] = set()
    waiting: list[tuple[Any, bool]] = [(last, False)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            order.append(node)
        elif node not in met:
            met.add(node)
            waiting.append((node, True))
            sources = [before for before, _ in node.next_functions if before is not None]
            waiting += [(before, False) for before in reversed(sources)]
    return order


def _saved(node: Any, owners: _Owners) -> dict[int, SavedPart]:
    """Return what a node saves on the GPU or the host, by storage; scalars of the host left out."""
    parts: dict[int, SavedPart] = {}
    for saved_as, tensor in kept_by(node):
        for key in storages_of(tensor):
            category, name = owners.get(key, (Category.ACTIVATIONS, ""))
            size_bytes = tensor.untyped_storage().nbytes()
            if tensor.dim() or name:
                parts.setdefault(key, SavedPart(saved_as, size_bytes, category, name))
    return parts


def _is_passed_over(node: Any, saved: dict[int, SavedPart]) -> bool:
    is_leaf = isinstance(getattr(node, "variable", None), torch.Tensor)
    return is_leaf or (not saved and node.name() in _ONLY_VIEWS)


def _sources(node: Any, places: dict[Any, int]) -> tuple[int, ...]:
    found: set[int] = set()
    waiting = [before for before, _ in node.next_functions]
    while waiting:
        before = waiting.pop()
        if before in places:
            found.add(places[before])
        elif before is not None:
            waiting += [earlier for earlier, _ in before.next_functions]
    return tuple(sorted(found))


def _short(name: str) -> str:
    """Without the word that all have: 'ReluBackward0' is 'Relu'."""
    return name.rstrip("0123456789").removesuffix("Backward")
