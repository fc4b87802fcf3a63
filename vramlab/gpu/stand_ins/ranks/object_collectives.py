"""Collectives of Python objects, where a rank is alone: `all_gather_object` and its like.

PyTorch pickles objects into tensors on the GPU, whose values are not kept. Other ranks do not run,
so what they would send is not known either: they are taken to have the same objects as this one,
and what only one of the others could tell is an error that says so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.session import Session
from vramlab.gpu.torch_internals import (
    FakeProcessGroup,
    backend_of,
    default_group,
    device_of_objects,
    is_outside,
)

Collective = Callable[..., Any]


def install(session: Session) -> None:
    """Replace the collectives where they are called."""
    for name, alone in _ALONE.items():
        stand_in = _where_alone(getattr(distributed_c10d, name), alone)
        session.patches.set(distributed_c10d, name, stand_in)
        session.patches.set(dist, name, stand_in)


def _where_alone(collective: Collective, alone: Collective) -> Collective:
    """Call `alone` where the group's other ranks do not run, else PyTorch's own collective."""

    def call(*args: Any, group: Any = None, **kwargs: Any) -> Any:
        names = _POSITIONS[alone]
        named: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
        group = named.pop("group", group)
        if not dist.is_initialized() or is_outside(group):
            return collective(group=group, **named)
        backend = backend_of(group or default_group(), device_of_objects(group))
        if not isinstance(backend, FakeProcessGroup):
            return collective(group=group, **named)
        return alone(group=group, **named)

    return call


def _all_gather(object_list: list[Any], obj: Any, group: Any) -> None:
    for rank in range(len(object_list)):
        object_list[rank] = copy.deepcopy(obj)


def _gather(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    if object_gather_list is not None:  # given on the rank that receives
        _all_gather(object_gather_list, obj, group)


def _broadcast(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    _must_be_source("broadcast_object_list", src, group, group_src)


def _scatter(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    rank = _must_be_source("scatter_object_list", src, group, group_src)
    if scatter_object_input_list is not None:
        scatter_object_output_list[0] = scatter_object_input_list[rank]


def _must_be_source(what: str, src: int | None, group: Any, group_src: int | None) -> int:
    """Return this rank's number in the group.

    Raises:
        UnsupportedOnVirtualGPU: another rank is the source.
    """
    rank = dist.get_rank(group)
    source = (src or 0) if group_src is None else group_src
    mine = rank if group_src is not None else dist.get_rank()
    if mine != source:
        raise UnsupportedOnVirtualGPU(
            f"{what} from rank {source}: this process is rank {mine}, alone on a virtual GPU, and "
            "does not know what that one sends. Run it as the rank that sends, make the object on "
            "every rank, or use values=True with real processes."
        )
    return rank


_ALONE: Mapping[str, Collective] = {
    "all_gather_object": _all_gather,
    "gather_object": _gather,
    "broadcast_object_list": _broadcast,
    "scatter_object_list": _scatter,
}

_POSITIONS: Mapping[Collective, tuple[str, ...]] = {
    alone: alone.__code__.co_varnames[: alone.__code__.co_argcount] for alone in _ALONE.values()
}
"""The names of their arguments, which are PyTorch's, in order."""
