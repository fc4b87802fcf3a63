"""Shadows: the bytes of small tensors on a GPU, kept on the host so that values stay true.

Kernels compute nothing on either engine. But what steers a program is small: positions, masks,
lengths, counts, step sizes. The storage of such a tensor has a shadow, its bytes in host memory,
as long as all that was written to it is known: copied from the host, filled, or computed from other
shadows. An op whose operands all have shadows runs again on the CPU, on these. Views need
nothing: they read the same bytes, in their own dtype.

A storage that is too large for that may still have one value everywhere, such as a mask that was
filled: then its shadow is one element, which follows element-wise ops.

Where an op has no CPU kernel, or refuses its operands there, its results are unknown; a program
never sees that. Which bytes a shadow is, and where it is kept, each engine decides (`Shadows`):
beside the record of a meta storage, or in the memory that stands for the GPU's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any

import torch

from vramlab.gpu.core.tensors import map_leaves, outputs_of, tensors_in
from vramlab.gpu.torch_internals import DisableTorchFunction, disable_current_modes, storage_id
from vramlab.kernels.rule_table.registry import overloads

MOST_BYTES = 2**16
"""Storages up to this size have shadows of all their bytes."""

MOST_REPEATED = 2**20
"""How many times an element is read at most where an op goes through a uniform tensor."""

MOST_COMPARED_BYTES = 2**26
"""Host tensors up to this size are searched for an element that differs from the first."""

_CPU = torch.device("cpu")
_PATTERN_BYTES = 16
"""As large as an element of the widest dtype."""
_NUMBERS = (int, float, bool)
OVERWRITING = frozenset({"fill_", "zero_", "copy_"})
WRITING_PLACES = frozenset(
    {"scatter_", "index_copy_", "index_put_", "_index_put_impl_", "index_fill_", "put_"}
    | {"__setitem__", "setitem"}
)
"""Ops that write to places, which may be all that a tensor has: `inverse[order] = arange(n)`."""
_WITHOUT_COUNTING = frozenset({"max", "min", "any", "all", "amax", "amin"})
"""Reductions of equal elements that give that element's result, however many there are."""


DECIDING = frozenset(
    f"{kind}_{word}{end}"
    for kind in ("bitwise", "logical")
    for word in ("and", "or")
    for end in ("", "_")
)
"""Logic of which one operand may decide alone."""


class Shadow:
    """What is known of one storage.

    Attributes:
        is_uniform: whether the same 16 bytes repeat all over it.
    """

    __slots__ = ("_fill", "_storage", "is_uniform")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._storage: torch.UntypedStorage | None = storage
        self._fill: tuple[Any, torch.dtype] | None = None
        self.is_uniform = False

    @classmethod
    def filled(cls, value: Any, dtype: torch.dtype) -> Shadow:
        """Make the shadow of a storage that is full of one number."""
        shadow = cls.__new__(cls)
        shadow._storage, shadow._fill, shadow.is_uniform = None, (value, dtype), True
        return shadow

    def view(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the elements of a tensor of the storage as a host tensor of the same bytes."""
        if tensor.nbytes > MOST_BYTES or tensor.is_conj() or tensor.is_neg():
            return None
        if self.is_uniform:
            storage_bytes = tensor.untyped_storage().nbytes()
            if storage_bytes > MOST_BYTES:
                return None
            pattern = self._pattern().repeat(-(-storage_bytes // _PATTERN_BYTES))
            self._storage = pattern[:storage_bytes].clone().untyped_storage()
            self.is_uniform = False
        assert self._storage is not None
        offset, size, stride = tensor.storage_offset(), tensor.size(), tensor.stride()
        return _set(self._storage, tensor.dtype, offset, size, stride)

    def element(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the one element that a tensor of the storage is full of, with as many dimensions.

        None where elements may differ.
        """
        if not tensor.numel() or tensor.is_conj() or tensor.is_neg():
            return None
        ones = (1,) * tensor.dim()
        if self.is_uniform:
            elements = self._pattern().view(tensor.dtype)
            if not torch.equal(elements.view(torch.uint8), _repeated(elements)):
                return None  # bytes that were written as a wider dtype
            return elements[0].reshape(ones)
        if not _is_one(tensor):
            return None
        assert self._storage is not None
        return _set(self._storage, tensor.dtype, tensor.storage_offset(), ones, ones)

    def _pattern(self) -> torch.Tensor:
        """Return the 16 bytes that repeat."""
        if self._storage is None:
            assert self._fill is not None
            value, dtype = self._fill
            filled = torch.full(
                (_PATTERN_BYTES // dtype.itemsize,), value, dtype=dtype, device=_CPU
            )
            self._storage = filled.untyped_storage()
        return _set(self._storage, torch.uint8, 0, (_PATTERN_BYTES,), (1,))


def _repeated(elements: torch.Tensor) -> torch.Tensor:
    """Return the bytes of the first element, as often as there are elements."""
    return elements[:1].view(torch.uint8).repeat(len(elements))


def _is_one(tensor: torch.Tensor) -> bool:
    """Return whether all elements of a tensor are one in memory."""
    sizes = zip(tensor.size(), tensor.stride(), strict=True)
    return not any(stride for size, stride in sizes if size > 1)


def _set(
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    offset: int | torch.SymInt,
    size: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device=_CPU).set_(storage, offset, size, stride)


def one_element(values: torch.Tensor) -> torch.Tensor | None:
    """Return the element that fills a host tensor; None where it is not one element in memory."""
    return values.as_strided((), ()) if values.numel() and _is_one(values) else None


def _repeated_element(values: torch.Tensor) -> torch.Tensor | None:
    """Return the element that all of a host tensor equal, as in the mask of a full batch."""
    if (element := one_element(values)) is not None:
        return element
    if not values.numel() or not values.is_contiguous() or values.nbytes > MOST_COMPARED_BYTES:
        return None
    flat = values.detach().view(-1)
    # Most data differ early, and are not gone through.
    for part in (flat[:64], flat):
        if not torch.equal(part, part[:1].expand(len(part))):
            return None
    return flat[0]


_NOTHING = nullcontext()


def no_grad() -> AbstractContextManager[None]:
    """Return torch.no_grad() where gradients are on: it takes as long as a small op."""
    return torch.no_grad() if torch.is_grad_enabled() else _NOTHING


UNKNOWN = object()
"""What an op returns that could not be followed."""


class Unknown(Exception):
    """An operand has no shadow."""


class Shadows(ABC):
    """The shadows of an engine, and how ops are followed on them."""

    @abstractmethod
    def shadow_of(self, tensor: torch.Tensor) -> Shadow | None:
        """Return the shadow of a GPU tensor's storage; None where it is not known."""

    @abstractmethod
    def set_shadow(self, tensor: torch.Tensor, shadow: Shadow | None) -> None:
        """Give the storage of a GPU tensor a shadow, or take it away."""

    @abstractmethod
    def empty(self, tensor: torch.Tensor) -> Shadow:
        """Make a shadow of all bytes of a GPU tensor's storage, to be filled in."""

    @abstractmethod
    def is_followed(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is dense, on a GPU of the engine, and of its own."""

    def known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the values of a GPU tensor as a host tensor; None where they are not known.

        It may be the shadow itself: changing it changes the GPU tensor.
        """
        shadow = self.shadow_of(tensor)
        if shadow is None:
            return None
        try:
            if (values := shadow.view(tensor)) is not None:
                return values
            element = shadow.element(tensor)
        except RuntimeError:  # a number, or a view, that the dtype does not allow
            return None
        return None if element is None else element.expand(tensor.size())

    def readable(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the values of a GPU tensor where they are known, and few enough to go through."""
        values = self.known(tensor)
        return None if values is None or tensor.numel() > MOST_REPEATED else values

    def forget(self, tensor: torch.Tensor) -> None:
        """Note that the values of a GPU tensor's storage are not known any more."""
        self.set_shadow(tensor, None)

    def learn(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Note what a GPU tensor holds, whatever its storage held before.

        Args:
            tensor: all of its storage that a program can see.
            values: on the host, of a shape that fits; they are converted to its dtype.
        """
        storage_bytes = tensor.untyped_storage().nbytes()
        if storage_bytes > MOST_BYTES:
            element = _repeated_element(values)
            shadow = None if element is None else Shadow.filled(element.item(), tensor.dtype)
            self.set_shadow(tensor, shadow)
        elif storage_bytes:
            shadow = self.empty(tensor)
            view = shadow.view(tensor)
            if view is None:
                shadow = None
            else:
                view.copy_(values)
            self.set_shadow(tensor, shadow)

    def write(self, tensor: torch.Tensor, values: torch.Tensor | None) -> None:
        """Note what was written to a GPU tensor, which may be a part of its storage.

        Args:
            tensor: the tensor.
            values: on the host; None where they are not known.
        """
        if values is not None and covers(tensor):
            self.learn(tensor, values)
            return
        shadow = None if values is None else self.shadow_of(tensor)
        view = None if shadow is None else shadow.view(tensor)
        if view is None or values is None:
            self.forget(tensor)
        else:
            view.copy_(values)

    def fill(self, tensor: torch.Tensor, value: Any) -> None:
        """Note that a GPU tensor was filled with a number."""
        filled = torch.full((), value, dtype=tensor.dtype, device=_CPU)
        self.write(tensor, filled.expand(tensor.size()))

    def decide(self, name: str, args: Sequence[Any], result: Any) -> None:
        """Note a result of logic (`DECIDING`) that one operand decides: false and x, true or x."""
        if not self.is_followed(result):
            return
        with DisableTorchFunction(), torch.no_grad():
            for arg in args[:2]:
                if not isinstance(arg, torch.Tensor):
                    values = torch.as_tensor(arg, device=_CPU)
                elif not self.is_followed(arg) or (known := self.known(arg)) is None:
                    continue
                elif (element := one_element(known)) is not None:
                    values = element
                else:
                    values = known
                if "and" in name and not values.any():
                    self.fill(result, 0)
                elif "or" in name and result.dtype == torch.bool and values.all():
                    self.fill(result, True)

    def count_on(self, func: Callable[..., Any], args: Sequence[Any]) -> bool:
        """Follow an op that has changed a known tensor by numbers, such as a count of batches.

        Args:
            func: the op, or a method of tensors.
            args: the tensor, and what else it was called with.

        Returns:
            Whether that could be done; if not, nothing has changed.
        """
        tensor, *numbers = args
        if not all(type(each) in _NUMBERS for each in numbers):
            return False
        with DisableTorchFunction():
            shadow = self.shadow_of(tensor)
            values = None if shadow is None else shadow.view(tensor)
            if values is None:
                return False
            try:
                func(values, *numbers)
            except (RuntimeError, NotImplementedError, TypeError):  # not on the CPU
                return False
        return True

    def follow(
        self,
        func: Callable[..., Any],
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        changed: Iterable[torch.Tensor] = (),
    ) -> Any:
        """Run an op on shadows after it ran on a GPU, so that its results have shadows as well.

        Args:
            func: the op, or a function of torch.
            name: its name, without namespace and overload.
            args: positional arguments.
            kwargs: by keyword.
            result: what it returned.
            changed: the tensors on GPUs that it wrote to.

        Returns:
            What it returns on the host; `UNKNOWN` where that is not known.
        """
        changed = list(changed)
        try:
            with DisableTorchFunction(), no_grad():
                truth = self._compute(func, name, args, kwargs, result, changed)
                if not any(result is each for each in changed):
                    self._learn_results(result, truth, args, kwargs)
                return truth
        except Exception:  # also what the CPU has no kernel for, or refuses
            for tensor in changed:
                self.forget(tensor)
            return UNKNOWN

    def _compute(
        self,
        func: Callable[..., Any],
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        changed: list[torch.Tensor],
    ) -> Any:
        new = [each for each in outputs_of(result) if each is not None and self.is_followed(each)]
        is_small = all(each.untyped_storage().nbytes() <= MOST_BYTES for each in new)
        by_element = _is_uniform_op(name)
        if not is_small and not by_element:
            raise Unknown
        apart: list[tuple[torch.Tensor, torch.Tensor]] = []

        def host(arg: Any) -> Any:
            if isinstance(arg, torch.device) or (isinstance(arg, str) and arg.startswith("cuda")):
                return _CPU
            if not isinstance(arg, torch.Tensor):
                return arg
            if not self.is_followed(arg):
                return _on_host(arg)
            shadow, values = self.shadow_of(arg), None
            is_changed = any(arg is each for each in changed)
            if shadow is not None and is_small:
                values = shadow.view(arg)
            if shadow is not None and values is None and by_element:
                values = shadow.element(arg)
                if values is not None and is_changed:
                    if not covers(arg):
                        raise Unknown
                    values = values.clone()
                    apart.append((arg, values))
            if values is None and is_small and not is_changed:
                values = self.readable(arg)
            if values is None and is_changed and is_small and _overwrites(name, kwargs, arg):
                values = torch.zeros(arg.size(), dtype=arg.dtype, device=_CPU)
                apart.append((arg, values))
            if values is None:
                raise Unknown
            return values

        hosts, named = map_leaves(host, tuple(args)), map_leaves(host, dict(kwargs))
        truth = func(*hosts, **named)
        if name in WRITING_PLACES:
            for _, values in apart:  # places that are not written differ after another start
                first = values.clone()
                _bytes_of(values).fill_(255)
                func(*hosts, **named)
                if not torch.equal(_bytes_of(first), _bytes_of(values)):
                    raise Unknown
        for tensor, values in apart:
            self.learn(tensor, values)
        return truth

    def follow_parts(
        self,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        changed: Sequence[torch.Tensor],
        run: Callable[[], Any],
    ) -> Any:
        """Run the parts of an op for what they allocate; the values are those of the op itself.

        Where these are not known, nothing is known of its results.

        Args:
            func: the op.
            args: positional arguments.
            kwargs: by keyword.
            changed: the tensors on GPUs that it writes to.
            run: runs the parts, and returns what the op returns.
        """
        written: list[torch.Tensor | None] = [None] * len(changed)

        def host(arg: Any) -> Any:
            if not isinstance(arg, torch.Tensor):
                return arg
            values = self.readable(arg) if self.is_followed(arg) else _on_host(arg)
            at = next((at for at, each in enumerate(changed) if each is arg), None)
            if values is None:
                raise Unknown
            if at is not None:
                values = written[at] = values.clone()
            return values

        truth: Any = UNKNOWN
        with suppress(Exception), DisableTorchFunction(), disable_current_modes(), torch.no_grad():
            hosts, named = map_leaves(host, tuple(args)), map_leaves(host, dict(kwargs))
            truth = func(*hosts, **named)
        result = run()
        with DisableTorchFunction(), torch.no_grad():
            for tensor, values in zip(changed, written, strict=True):
                self.write(tensor, None if truth is UNKNOWN else values)
            if truth is not UNKNOWN:
                self._learn_results(result, truth, args, kwargs)
            else:
                for each in outputs_of(result):
                    if each is not None and self.is_followed(each):
                        self.forget(each)
        return result

    def learn_all(self, result: Any, truth: Any) -> None:
        """Note what the tensors hold that an op has made.

        Args:
            result: what it returned.
            truth: what it returns on the host.
        """
        for each, values in zip(outputs_of(result), outputs_of(truth), strict=True):
            if each is not None and values is not None and self.is_followed(each):
                self.learn(each, values)

    def _learn_results(
        self, result: Any, truth: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        operands = {
            storage_id(tensor.untyped_storage())
            for tensor in tensors_in(args, kwargs)
            if self.is_followed(tensor)
        }
        for each, values in zip(outputs_of(result), outputs_of(truth), strict=True):
            if each is None or not self.is_followed(each) or not isinstance(values, torch.Tensor):
                continue
            if storage_id(each.untyped_storage()) in operands:
                continue  # a view, or what the op has changed
            if values.shape == each.shape:
                self.learn(each, values)
            elif values.numel() == 1:
                self.learn(each, values.reshape(()).expand(each.size()))


def covers(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is all of its storage."""
    return tensor.untyped_storage().nbytes() == tensor.nbytes


def _overwrites(name: str, kwargs: Mapping[str, Any], tensor: torch.Tensor) -> bool:
    """Return whether an op may write all of a tensor's storage, whatever it held before."""
    is_out = any(tensor is each for each in tensors_in((kwargs.get("out"),)))
    if name in WRITING_PLACES:
        return covers(tensor) and tensor.nbytes <= MOST_BYTES
    return covers(tensor) and (is_out or name in OVERWRITING)


def _bytes_of(values: torch.Tensor) -> torch.Tensor:
    storage = values.untyped_storage()
    return _set(storage, torch.uint8, 0, (storage.nbytes(),), (1,))


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type != "cpu" or tensor.nbytes > MOST_BYTES:
        raise Unknown
    return tensor.detach()


@cache
def _is_uniform_op(name: str) -> bool:
    """Return whether equal elements give equal results, whatever their number."""
    ops = [*overloads(f"aten.{name}"), *overloads(f"aten.{name.rstrip('_')}")]
    return name in _WITHOUT_COUNTING or any(torch.Tag.pointwise in each.tags for each in ops)
