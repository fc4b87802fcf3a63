"""Collectives of torch.distributed: what they write into, and how a rank alone gets them done.

Source of the ops: torch/csrc/distributed/c10d/Ops.cpp, PyTorch 2.13.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C import _distributed_c10d
from torch._C._distributed_c10d import Work
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

from vramlab.gpu.core.dispatcher import Dispatcher, handles, tensors_in
from vramlab.gpu.core.storage_record import holding_of

c10d = torch.ops.c10d
functional = torch.ops._c10d_functional

RECEIVING = (
    "allgather_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "allreduce_",
    "allreduce_coalesced_",
    "alltoall_",
    "alltoall_base_",
    "broadcast_",
    "gather_",
    "reduce_",
    "reduce_scatter_",
    "reduce_scatter_tensor_coalesced_",
    "scatter_",
    "_allgather_base_",
    "_reduce_scatter_base_",
)
"""Ops of c10d that write into tensors. Their schemas do not say so."""

FROM_A_PEER = ("recv_", "recv_any_source_")
"""Ops that one rank may call long before the other one sends."""

FUNCTIONAL = (
    "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced",
    "all_reduce",
    "all_reduce_",
    "all_reduce_coalesced",
    "all_reduce_coalesced_",
    "all_to_all_single",
    "broadcast",
    "broadcast_",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced",
)
"""The collectives that DTensor uses, which return what they receive."""


def receive(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run a collective; nobody knows afterwards what is in the tensors it writes into.

    The work that it returns is done, and has the tensors as its result, for which DDP's reducer
    asks: without values, PyTorch's fake process group has none.
    """
    place = dispatcher.place_of(func, args, kwargs)
    if dispatcher.carrier.type == "cpu" and place is not None:
        result = _exchange_copies(func, args, kwargs)
        dispatcher.account(func, args, kwargs, result, place)
    else:
        result = dispatcher.run_plain(func, args, kwargs)
    _forget(args)
    if place is None or not isinstance(result, tuple):
        return result
    received, _ = result
    return received, _done(list(tensors_in((received,))))


def receive_from_peer(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Begin to receive. It must not be waited for: the other side may be about to do the same."""
    work = dispatcher.run_plain(func, args, kwargs)
    _forget(args)
    return work


def receive_new(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run a functional collective, which returns what it receives."""
    place = dispatcher.place_of(func, args, kwargs)
    if dispatcher.carrier.type == "meta" or place is None:
        return dispatcher.run_plain(func, args, kwargs)
    received = func(*args, **kwargs)
    for tensor in tensors_in((received,)):
        functional.wait_tensor.default(tensor)
    # A tensor of its own: gloo's threads let go of theirs when they please.
    result = tree_map(torch.clone, received)
    dispatcher.account(func, args, kwargs, result, place)
    return result


def wrap(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Wrap the result of a collective that may still run. For meta tensors PyTorch makes another.

    Source: `_wrap_tensor_autograd` in torch/distributed/_functional_collectives.py, PyTorch 2.13.
    """
    from torch.distributed._functional_collectives import AsyncCollectiveTensor  # takes a while

    (result,) = args
    return AsyncCollectiveTensor(result)


def _forget(args: Any) -> None:
    """Note that nobody knows what is in these tensors."""
    for tensor in tensors_in(args):
        if (holding := holding_of(tensor)) is not None:
            holding.forget()


def _exchange_copies(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run a collective on copies, and wait for it: gloo's threads let go of them when they please.

    Otherwise a tensor of the program would end at a moment that nobody can foretell.
    """
    copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def copied(arg: Any) -> Any:
        if not isinstance(arg, torch.Tensor):
            return arg
        return copies.setdefault(id(arg), (arg, arg.clone()))[1]

    work = func(*tree_map(copied, args), **kwargs)
    Work.unbox(work[-1] if isinstance(work, tuple) else work).wait()
    for tensor, copy in copies.values():
        tensor.copy_(copy)
    return (args[0], work[-1]) if isinstance(work, tuple) else work


def _done(tensors: list[torch.Tensor]) -> Any:
    """Work that is done, with these tensors as its result."""
    future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
    future.set_result(tensors)
    module: Any = _distributed_c10d  # its types leave this function out
    return module._create_work_from_future(future).boxed()


handles(*(getattr(c10d, name).default for name in RECEIVING))(receive)
handles(*(getattr(c10d, name).default for name in FROM_A_PEER))(receive_from_peer)
handles(*(getattr(functional, name).default for name in FUNCTIONAL))(receive_new)
if hasattr(functional, "_wrap_tensor_autograd"):  # not in every version
    handles(functional._wrap_tensor_autograd.default)(wrap)
