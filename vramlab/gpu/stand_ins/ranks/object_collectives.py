"""Python objects sent between ranks: `broadcast_object_list` and its like.

PyTorch pickles objects into tensors on the GPU, whose values are not kept. So ranks that run as
processes tell each other their objects through the store in which they have met. Where a rank is
alone, the others are taken to have the same objects as this one, and what only one of the others
could tell is an error that says so.
"""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.local_ranks import shared_store
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.torch_internals import (
    FakeProcessGroup,
    backend_of,
    default_group,
    device_of_objects,
    is_outside,
)

Collective = Callable[..., Any]

_NCCL = "ProcessGroupNCCL"
"""What the names of groups begin with that move nothing on the native engine."""


def install(patches: Patches) -> None:
    """Replace the collectives where they are called."""
    for name, stand_in in _STAND_INS.items():
        replaced = _where_nothing_moves(getattr(distributed_c10d, name), stand_in)
        patches.set(distributed_c10d, name, replaced)
        patches.set(dist, name, replaced)


def _where_nothing_moves(collective: Collective, stand_in: Collective) -> Collective:
    """Call the stand-in for groups that move no bytes, else PyTorch's own collective."""
    names = stand_in.__code__.co_varnames[: stand_in.__code__.co_argcount]

    @functools.wraps(collective)
    def call(*args: Any, **kwargs: Any) -> Any:
        named: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
        group = named.get("group")
        if not dist.is_initialized() or is_outside(group):
            return collective(*args, **kwargs)
        group = named["group"] = group or default_group()
        backend = backend_of(group, device_of_objects(group))
        if isinstance(backend, FakeProcessGroup) or type(backend).__name__.startswith(_NCCL):
            return stand_in(**named)
        return collective(*args, **kwargs)

    return call


class _Objects:
    """The objects of one call, by the number of the rank that has them.

    Args:
        what: the function that was called.
        group: its process group.
        between: the sender and the receiver, if these are two.
    """

    def __init__(self, what: str, group: Any, between: tuple[int, int] | None = None) -> None:
        self._what = what
        self._rank = dist.get_rank(group)
        self._store = shared_store()
        # Ranks that have had other default groups before number theirs differently.
        of = "default" if group is default_group() else group.group_name
        name = f"vramlab/{of}/{what if between is None else between}"
        # A rank has called this as often as the others, if they have met in the same store.
        calls = 0 if self._store is None else self._store.add(f"{name}/{self._rank}", 1)
        self._key = f"{name}/{calls}"
        self._own: list[Any] = []

    def tell(self, objects: Any) -> None:
        """Tell the others."""
        self._own.append(objects)
        if self._store is not None:
            self._store.set(f"{self._key}/{self._rank}", pickle.dumps(objects))

    def fill(self, objects: list[Any]) -> None:
        """Put what each rank has told into a list."""
        objects[:] = [self.of(rank) for rank in range(len(objects))]

    def of(self, rank: int) -> Any:
        """Return what a rank has told; wait until it has.

        Raises:
            UnsupportedOnVirtualGPU: that rank does not run, and this one has told nothing.
        """
        if self._store is not None and rank != self._rank:
            return pickle.loads(self._store.get(f"{self._key}/{rank}"))
        if not self._own:
            raise UnsupportedOnVirtualGPU(
                f"{self._what} from rank {rank}: this process is rank {self._rank}, alone on a "
                "virtual GPU, and does not know what that one sends. Run it as the rank that "
                "sends, make the object on every rank, start all ranks with torchrun, or use "
                "values=True with real processes."
            )
        return copy.deepcopy(self._own[0])


def _all_gather(object_list: list[Any], obj: Any, group: Any = None) -> None:
    objects = _Objects("all_gather_object", group)
    objects.tell(obj)
    objects.fill(object_list)


def _gather(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    objects = _Objects("gather_object", group)
    objects.tell(obj)
    if object_gather_list is not None:  # given on the rank that receives
        objects.fill(object_gather_list)


def _broadcast(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    objects = _Objects("broadcast_object_list", group)
    source = _number(group, src, group_src)
    if source == dist.get_rank(group):
        objects.tell(object_list)
    else:
        object_list[:] = objects.of(source)


def _scatter(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    objects = _Objects("scatter_object_list", group)
    source = _number(group, src, group_src)
    if source == dist.get_rank(group):
        objects.tell(scatter_object_input_list)
    scatter_object_output_list[0] = objects.of(source)[dist.get_rank(group)]


def _send(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    between = dist.get_rank(group), _number(group, dst, group_dst)
    _Objects("send_object_list", group, between).tell(object_list)


def _receive(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    if src is None and group_src is None:
        raise UnsupportedOnVirtualGPU(
            "recv_object_list from any rank is not modelled by the virtual GPU. Name the source "
            "(src=...), or run on real GPUs."
        )
    source = _number(group, src, group_src)
    objects = _Objects("recv_object_list", group, (source, dist.get_rank(group)))
    object_list[:] = objects.of(source)
    return dist.get_global_rank(group, source)


def _number(group: Any, rank: int | None, in_group: int | None) -> int:
    """Return a rank's number in the group; the first one's if none is named."""
    return dist.get_group_rank(group, rank or 0) if in_group is None else in_group


_STAND_INS: Mapping[str, Collective] = {
    "all_gather_object": _all_gather,
    "gather_object": _gather,
    "broadcast_object_list": _broadcast,
    "scatter_object_list": _scatter,
    "send_object_list": _send,
    "recv_object_list": _receive,
}
