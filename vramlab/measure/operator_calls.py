"""Which of PyTorch's own operators (ATen's) a line of Python calls, forward and backward.

    with record_operators() as calls:
        torch.nn.functional.linear(x, weight, bias).sum().backward()
    calls                  # a table: operator, shapes, new memory, FLOPs
    calls.flops            # of all matrix products

What is recorded are calls below autograd: each is a kernel, or only changes what is known of a
tensor (its shape, its strides), and then it takes no memory. Works on a real GPU and a virtual one.

FLOPs are those that torch.utils.flop_counter knows: of matrix products, convolutions and attention,
with a multiplication and an addition counted as two. Other kernels have None.

Known limitations: what a kernel reads and writes is taken to be each of its tensors once, all of
it; of an embedding's table, the rows that are looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vramlab.gpu.torch_internals import (
    OpOverload,
    current_graph_task_id,
    schema_of,
    storage_id,
    tree_leaves,
)
from vramlab.measure.flops import flop_registry
from vramlab.measure.op_observer import WatchOps
from vramlab.table import ShownAsTable, Table

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One call of one ATen operator."""

    name: str
    """Such as 'aten.addmm'."""
    input_shapes: tuple[tuple[int, ...], ...]
    output_shapes: tuple[tuple[int, ...], ...]
    is_view: bool
    """Whether it only makes another view of its input: no kernel, no memory."""
    dtype: str | None
    """Of its first floating-point operand, such as 'float16'; matrices are multiplied in it."""
    moved_bytes: int
    """Lower bound of what its kernel reads and writes: each tensor once, tensors changed in place
    twice. 0 for views and for memory that is left uninitialized."""
    new_bytes: int
    """Storages that it made."""
    flops: int | None
    """Additions and multiplications, where torch counts them."""
    backward: bool
    """Whether it ran in a backward pass."""


@dataclass
class OperatorCalls(ShownAsTable):
    """All calls of a recording, in order. What `with record_operators() as calls` gives."""

    calls: list[OperatorCall]

    @property
    def kernels(self) -> list[OperatorCall]:
        """The calls that are more than views."""
        return [call for call in self.calls if not call.is_view]

    @property
    def flops(self) -> int:
        """FLOPs of all calls for which torch counts them."""
        return sum(call.flops or 0 for call in self.calls)

    @property
    def moved_bytes(self) -> int:
        """Add up what all kernels read and write at least."""
        return sum(call.moved_bytes for call in self.calls)

    def table(self, *, views: bool = True) -> Table:
        """Show one row per call.

        Args:
            views: also list calls that take no kernel.
        """
        listed = self.calls if views else self.kernels
        return Table(
            caption=f"{len(listed)} calls of ATen operators",
            header=("operator", "pass", "inputs", "output", "new bytes", "FLOPs"),
            rows=tuple(
                (
                    call.name,
                    "backward" if call.backward else "forward",
                    "\n".join(map(_in_words, call.input_shapes)) or "-",
                    "\n".join(map(_in_words, call.output_shapes)) or "-",
                    "view" if call.is_view else f"{call.new_bytes:,}",
                    "-" if call.flops is None else f"{call.flops:,}",
                )
                for call in listed
            ),
        )


@contextmanager
def record_operators() -> Iterator[OperatorCalls]:
    """Note every ATen operator that is called while the body of the with statement runs.

    Calls of `detach`, which autograd makes for its own bookkeeping, are left out.
    """
    recorded = OperatorCalls([])

    def note(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        if func is not torch.ops.aten.detach.default:
            recorded.calls.append(call_of(func, args, kwargs, result))

    with WatchOps(note):
        yield recorded


def call_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> OperatorCall:
    """Describe a call of an operator that has returned."""
    inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
    there = {storage_id(tensor.untyped_storage()) for tensor in inputs}
    made = {storage_id(tensor.untyped_storage()): tensor.untyped_storage() for tensor in outputs}
    new_bytes = sum(storage.nbytes() for key, storage in made.items() if key not in there)
    count = flop_registry.get(func.overloadpacket)
    # An in-place operator's result lies in its input's storage, too, but it is a kernel.
    is_view = (
        bool(outputs) and new_bytes == 0 and not schema_of(func).is_mutable and set(made) <= there
    )
    return OperatorCall(
        name=f"aten.{func.overloadpacket.__name__}",
        input_shapes=tuple(tuple(tensor.shape) for tensor in inputs),
        output_shapes=tuple(tuple(tensor.shape) for tensor in outputs),
        is_view=is_view,
        dtype=_dtype(inputs or outputs),
        moved_bytes=0 if is_view else _moved_bytes(func, args, kwargs, inputs, outputs),
        new_bytes=new_bytes,
        flops=None if count is None else int(count(*args, **kwargs, out_val=result)),
        backward=current_graph_task_id() != -1,
    )


def _dtype(tensors: list[Tensor]) -> str | None:
    floating = (tensor.dtype for tensor in tensors if tensor.dtype.is_floating_point)
    first = next(floating, None)
    return None if first is None else str(first).removeprefix("torch.")


def _moved_bytes(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], read: list[Tensor], made: list[Tensor]
) -> int:
    packet = func.overloadpacket
    if packet in (aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty):
        return 0
    if packet is aten.embedding:
        return _extent_bytes(args[1]) + 2 * _extent_bytes(made[0])  # a row read for a row written
    if packet is aten.copy_:
        return _extent_bytes(args[0]) + _extent_bytes(args[1])
    written = made
    if not schema_of(func).returns:  # lists that are changed in place, as by optimizers
        changed = [
            kwargs.get(argument.name, args[position] if position < len(args) else None)
            for position, argument in enumerate(schema_of(func).arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        written = [leaf for leaf in tree_leaves(changed) if isinstance(leaf, Tensor)]
    return sum(map(_extent_bytes, [*read, *written]))


def _extent_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements; an expanded one has fewer than its shape says."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _in_words(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"
