"""Collectives of torch.distributed: what they write into, and how a rank alone gets them done.

Source of the ops: torch/csrc/distributed/c10d/Ops.cpp, PyTorch 2.13.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import handler
from vramlab.gpu.core.storage_record import record_of
from vramlab.gpu.core.tensors import tensors_in
from vramlab.gpu.torch_internals import OpOverload, tree_map, work_of

functional = torch.ops._c10d_functional

RECEIVING = (
    "c10d.allgather_.default",
    "c10d.allgather_coalesced_.default",
    "c10d.allgather_into_tensor_coalesced_.default",
    "c10d.allreduce_.default",
    "c10d.allreduce_coalesced_.default",
    "c10d.alltoall_.default",
    "c10d.alltoall_base_.default",
    "c10d.broadcast_.default",
    "c10d.gather_.default",
    "c10d.reduce_.default",
    "c10d.reduce_scatter_.default",
    "c10d.reduce_scatter_tensor_coalesced_.default",
    "c10d.scatter_.default",
    "c10d._allgather_base_.default",
    "c10d._reduce_scatter_base_.default",
)
"""Ops of c10d that write into tensors. Their schemas do not say so."""

FROM_A_PEER = ("c10d.recv_.default", "c10d.recv_any_source_.default")
"""Ops that one rank may call long before the other one sends."""

FUNCTIONAL = (
    "_c10d_functional.all_gather_into_tensor.default",
    "_c10d_functional.all_gather_into_tensor_coalesced.default",
    "_c10d_functional.all_reduce.default",
    "_c10d_functional.all_reduce_.default",
    "_c10d_functional.all_reduce_coalesced.default",
    "_c10d_functional.all_reduce_coalesced_.default",
    "_c10d_functional.all_to_all_single.default",
    "_c10d_functional.broadcast.default",
    "_c10d_functional.broadcast_.default",
    "_c10d_functional.reduce_scatter_tensor.default",
    "_c10d_functional.reduce_scatter_tensor_coalesced.default",
)
"""The collectives that DTensor uses, which return what they receive."""


@handler(*RECEIVING)
def receive(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run a collective; the values of the tensors it writes are unknown afterwards.

    It returns completed work whose result is the tensors, because DDP's reducer reads it; without
    values, the work of PyTorch's fake process group has no result.
    """
    device_index = dispatcher.find_device_index(func, args, kwargs)
    if dispatcher.backing_device.type == "cpu" and device_index is not None:
        result = _exchange_copies(func, args, kwargs)
        dispatcher.allocate_outputs(func, args, kwargs, result, device_index)
    else:
        result = dispatcher.run_plain(func, args, kwargs)
    _forget(args)
    if device_index is None or not isinstance(result, tuple):
        return result
    received, _ = result
    return received, _done(list(tensors_in((received,))))


@handler(*FROM_A_PEER)
def receive_from_peer(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Begin to receive. It must not be waited for: the other side may be about to do the same."""
    work = dispatcher.run_plain(func, args, kwargs)
    _forget(args)
    return work


@handler(*FUNCTIONAL)
def receive_new(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run a functional collective, which returns what it receives."""
    device_index = dispatcher.find_device_index(func, args, kwargs)
    if dispatcher.backing_device.type == "meta" or device_index is None:
        return dispatcher.run_plain(func, args, kwargs)
    received = func(*args, **kwargs)
    for tensor in tensors_in((received,)):
        functional.wait_tensor.default(tensor)
    # A tensor of its own: gloo's threads let go of theirs when they please.
    result = tree_map(torch.clone, received)
    dispatcher.allocate_outputs(func, args, kwargs, result, device_index)
    return result


@handler("_c10d_functional.wait_tensor.default", "_c10d_functional.wait_tensors.default")
def wait(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Return the tensor itself, once it is there. For meta tensors PyTorch makes another.

    The same for several, since 2.15.

    Source: `wait_tensor` in torch/csrc/distributed/c10d/Functional.cpp, PyTorch 2.13.
    """
    if dispatcher.backing_device.type != "meta":
        return dispatcher.run_plain(func, args, kwargs)
    (waited_for,) = args
    return waited_for


@handler("_c10d_functional._wrap_tensor_autograd.default")  # not in every version
def wrap(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Wrap the result of a collective that may still run. For meta tensors PyTorch makes another.

    Source: `_wrap_tensor_autograd` in torch/distributed/_functional_collectives.py, PyTorch 2.13.
    """
    from vramlab.gpu.torch_internals import AsyncCollectiveTensor  # importing it takes a while

    (result,) = args
    return AsyncCollectiveTensor(result)


def _forget(args: Any) -> None:
    """Mark the values of these tensors as unknown."""
    for tensor in tensors_in(args):
        if (record := record_of(tensor)) is not None:
            record.forget_values()


def _exchange_copies(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run a collective on copies, and wait for it.

    gloo's threads release their tensors at unpredictable times, so the program's own tensors would
    be freed at unpredictable times too.
    """
    copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def copied(arg: Any) -> Any:
        if not isinstance(arg, torch.Tensor):
            return arg
        return copies.setdefault(id(arg), (arg, arg.clone()))[1]

    work = func(*tree_map(copied, args), **kwargs)
    dist.Work.unbox(work[-1] if isinstance(work, tuple) else work).wait()
    for tensor, copy in copies.values():
        tensor.copy_(copy)
    return (args[0], work[-1]) if isinstance(work, tuple) else work


def _done(tensors: list[torch.Tensor]) -> Any:
    """Work that is done, with these tensors as its result."""
    future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
    future.set_result(tensors)
    return work_of(future).boxed()
