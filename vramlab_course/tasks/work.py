"""What a program computes, and where: for repairs, whose work has to be done on the GPU.

Counted where ops reach the virtual GPU, below autograd and in all threads, so that nothing a
program does about modules, hooks or modes changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import NotFixed

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from vramlab import VirtualGPU

HOST_SHARE = 0.05
"""Of what the reference computes on the GPUs, so much may be computed on the host: results are
gathered and printed there. What the reference itself computes there may be twice as much, since
there is more than one way to run an optimizer."""

LEAST_SHARE = 0.25
"""Of what the reference computes on the GPUs, a repair computes at least so much there. Causal
attention that leaves out what nobody may see computes half."""

MOST_NUMBERS = 4096
"""So many numbers may go from tensors to Python or NumPy and back, beyond the reference's: losses
and norms, but no batch."""

_UNCOUNTED = ("empty", "new_empty")
_COPIES = ("_to_copy", "copy_", "_foreach_copy_", "_pin_memory")

Watcher = Callable[["OpOverload", Sequence[Any], Mapping[str, Any]], None]


@dataclass
class Work:
    """What a program has computed so far.

    Operations are FLOPs for products and attention, and for any other op the elements of its
    largest operand or result. Views and copies between devices are none.
    """

    on_gpus: dict[int, int] = field(default_factory=dict)
    """Operations on each GPU."""

    on_host: int = 0
    """Operations on the host."""

    flops: int = 0
    """FLOPs of products and attention, wherever they ran: as `FlopCounterMode` counts them."""

    numbers: int = 0
    """Numbers that went from tensors to Python or NumPy, or back."""

    watchers: list[Watcher] = field(default_factory=list)
    """Called with every op that is counted, after it ran."""

    is_paused: bool = True
    """While our own code runs: nothing is counted."""

    @property
    def on_gpu(self) -> int:
        """Operations on all GPUs."""
        return sum(self.on_gpus.values())

    @contextmanager
    def counting(self, is_counting: bool = True) -> Iterator[None]:
        """Count what the body computes, or (False) do not."""
        before, self.is_paused = self.is_paused, not is_counting
        try:
            yield
        finally:
            self.is_paused = before

    def require_like(self, own: Work, least_share: float = LEAST_SHARE) -> None:
        """Require that about the same work was done, and on the GPU, as by the reference.

        Raises:
            NotFixed: too much was done on the host, or too little on the GPU.
        """
        most = 2 * own.on_host + HOST_SHARE * own.on_gpu
        if self.on_host > most:
            raise NotFixed(
                f"It computes on the host: {self.on_host:.2g} operations, where {own.on_gpu:.2g} "
                f"belong on the GPU, and {most:.2g} are allowed on the host. What was moved there?"
            )
        if self.on_gpu < least_share * own.on_gpu:
            raise NotFixed(
                f"It computes next to nothing on the GPU: {self.on_gpu:.2g} operations, where a "
                f"program that does what is asked for takes {own.on_gpu:.2g}."
            )
        if self.numbers > own.numbers + MOST_NUMBERS:
            raise NotFixed(
                f"It moves {self.numbers} numbers between tensors and Python or NumPy; "
                f"{own.numbers + MOST_NUMBERS} are allowed. Compute with tensors on the GPU."
            )

    def note(
        self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Count an op."""
        from vramlab.gpu.core.tensors import tensors_in
        from vramlab.gpu.ops.copies import device_index_of

        tensors = list(tensors_in((*args, result), kwargs))
        places = {device_index_of(tensor) for tensor in tensors}
        gpus = sorted(place for place in places if place >= 0)
        name = func._schema.name.partition("::")[2]
        if func.is_view or name.startswith(_UNCOUNTED) or (name in _COPIES and len(places) > 1):
            return
        flops = _flops(func, args, kwargs, result)
        self.flops += flops
        operations = flops or max(map(_elements, (*args, *kwargs.values(), result)), default=0)
        if gpus:
            self.on_gpus[gpus[0]] = self.on_gpus.get(gpus[0], 0) + operations
        else:
            self.on_host += operations
        for watcher in self.watchers:
            watcher(func, args, kwargs)


@contextmanager
def watching(gpu: VirtualGPU, work: Work) -> Iterator[None]:
    """Let an attached virtual GPU count in `work`, unless that is paused, what programs compute."""
    from vramlab.gpu.core.observers import Observer

    class Counting(Observer):
        def op_ran(self, *op: Any) -> None:
            if not work.is_paused:
                work.note(*op)

    def answer_and_count(answer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = answer(*args, **kwargs)
        if not work.is_paused:
            work.numbers += max(_elements(args[0]), _elements(result))
        return result

    tensor = torch.Tensor
    readers = (tensor.numpy, tensor.__array__, tensor.tolist, tensor.item, tensor.__float__)
    makers = (torch.tensor, torch.as_tensor, torch.asarray, tensor.new_tensor)
    overrides = gpu._service.overrides
    before = {function: overrides[function] for function in (*readers, *makers)}
    overrides.update({name: partial(answer_and_count, answer) for name, answer in before.items()})
    try:
        with gpu.machine.observing(Counting()):
            yield
    finally:
        overrides.update(before)


def _flops(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    from torch.utils.flop_counter import flop_registry

    count = flop_registry.get(func._overloadpacket)
    return 0 if count is None else int(count(*args, **kwargs, out_val=result))


def _elements(value: Any) -> int:
    """Of a tensor, or of all tensors in a list."""
    if isinstance(value, torch.Tensor):
        return int(value.numel())
    if isinstance(value, list | tuple):
        return sum(map(_elements, value))
    return 0
