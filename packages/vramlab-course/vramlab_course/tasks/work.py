"""What a program computes, and where: for repairs, whose work has to be done on the GPU.

Counted where ops reach the virtual GPU, below autograd and in all threads, so that nothing a
program does about modules, hooks or modes changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.operations import base_name, elements, flops_of, operations_of

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from vramlab import VirtualGPU

HOST_SHARE = 0.05
"""Of what the reference computes on the GPUs, so much may be computed on the host: results are
gathered and printed there. What the reference itself computes there may be twice as much, since
there is more than one way to run an optimizer."""

LEAST_SHARE = 0.9
"""Of the FLOPs of the reference, a repair takes at least so many: all who do the work take 97 %.
Tasks in which less is right say so."""

LEAST_ELEMENT_WISE = 0.25
"""Of the operations of a reference that hardly multiplies: there is more than one way to compute
a norm, and some take half."""

NARROW_SHARE = 0.05
"""Of the FLOPs of a reference in float32, so many may be in float16 or bfloat16."""

MOST_NUMBERS = 4096
"""So many numbers may go from tensors to Python or NumPy and back, beyond the reference's: losses
and norms, but no batch."""

_UNCOUNTED = ("empty", "new_empty")
_COPIES = ("_to_copy", "copy_", "_foreach_copy_", "_pin_memory")

Watcher = Callable[["OpOverload", Sequence[Any], Mapping[str, Any]], None]


@dataclass
class Work:
    """What a program has computed so far.

    Operations are FLOPs for what multiplies and adds up (`operations.py`), and for any other op the
    elements of its largest operand or result. Views and copies between devices are none.
    """

    on_gpus: dict[int, int] = field(default_factory=dict)
    """Operations on each GPU."""

    on_host: int = 0
    """Operations on the host."""

    flops: int = 0
    """Of `operations`, those of what multiplies and adds up, wherever it ran (`operations.py`)."""

    narrow_flops: int = 0
    """Of `flops`, those with numbers of fewer than 4 bytes, such as float16."""

    to_host_bytes: int = 0
    """Copied from GPUs to the host."""

    numbers: int = 0
    """Numbers that went from tensors to Python or NumPy, or back."""

    watchers: list[Watcher] = field(default_factory=list)
    """Called with every op that is counted, after it ran."""

    is_counting: bool = False
    """While a program runs."""

    pausing_threads: list[int] = field(default_factory=list)
    """Where our own code runs in between: nothing is counted there. Ranks may be threads, and one
    that waits for others waits in our code."""

    @property
    def is_paused(self) -> bool:
        """Whether nothing is counted in this thread."""
        return not self.is_counting or get_ident() in self.pausing_threads

    @property
    def on_gpu(self) -> int:
        """Operations on all GPUs."""
        return sum(self.on_gpus.values())

    @property
    def operations(self) -> int:
        """Operations, wherever they ran.

        A product counts the same if it is written as element-wise operators and sums.
        """
        return self.on_gpu + self.on_host

    def add(self, other: Work) -> None:
        """Add what another program has computed."""
        for gpu, operations in other.on_gpus.items():
            self.on_gpus[gpu] = self.on_gpus.get(gpu, 0) + operations
        self.on_host += other.on_host
        self.flops += other.flops
        self.narrow_flops += other.narrow_flops
        self.to_host_bytes += other.to_host_bytes
        self.numbers += other.numbers

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what the body computes."""
        self.is_counting = True
        try:
            yield
        finally:
            self.is_counting = False

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Do not count what the body computes: it is our own code."""
        self.pausing_threads.append(get_ident())
        try:
            yield
        finally:
            self.pausing_threads.remove(get_ident())

    def require_like(
        self, own: Work, least_share: float = LEAST_SHARE, any_precision: bool = False
    ) -> None:
        """Require that about the same work was done, and on the GPU, as by the reference.

        The work is its FLOPs, or all of its operations where those are most of them. Products may
        be written element by element, so either is enough.

        Args:
            own: of the reference.
            least_share: of the reference's work, so much has to be done.
            any_precision: products may have numbers of fewer bytes than the reference's.

        Raises:
            NotFixed: too much was done on the host, or too little on the GPU, or in numbers of too
                few bytes.
        """
        most = 2 * own.on_host + HOST_SHARE * own.on_gpu
        if self.on_host > most:
            raise NotFixed(
                f"It computes on the host: {self.on_host:.2g} operations, although "
                f"{own.on_gpu:.2g} belong on the GPU and at most {most:.2g} are allowed on the "
                "host. Which tensors were moved there?"
            )
        if own.flops < own.operations / 2:
            least_share = min(least_share, LEAST_ELEMENT_WISE)
        share = max(self.flops / max(own.flops, 1), self.on_gpu / max(own.on_gpu, 1))
        if own.on_gpu and share < least_share:
            raise NotFixed(
                f"It does {share:.0%} of the work: {self.on_gpu:.2g} operations on the GPU, where "
                f"a correct program takes {own.on_gpu:.2g}. What is left out?"
            )
        narrow = self.narrow_flops - own.narrow_flops
        if not any_precision and narrow > NARROW_SHARE * own.flops:
            raise NotFixed(
                f"It computes {narrow / self.flops:.0%} of its products with numbers of 2 bytes or "
                "fewer, such as float16, where 4 bytes are asked for. What has become narrower?"
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

        if isinstance(result, bool | int | float | complex):
            self.numbers += 1  # what float(x), int(x), bool(x), x.item() and torch.equal() give
        tensors = list(tensors_in((*args, result), kwargs))
        places = {device_index_of(tensor) for tensor in tensors}
        gpus = sorted(place for place in places if place >= 0)
        name = func._schema.name.partition("::")[2]
        if name in _COPIES and len(places) > 1:
            self.to_host_bytes += sum(
                tensor.nbytes for tensor in tensors_in((result,)) if device_index_of(tensor) < 0
            )
            return
        if func.is_view or name.startswith(_UNCOUNTED):
            return
        flops = flops_of(func, args, kwargs, result)
        self.flops += flops
        if flops and any(each.is_floating_point() and each.itemsize < 4 for each in tensors):
            self.narrow_flops += flops
        operations = operations_of(func, args, kwargs, result, flops)
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
        def op_ran(self, func: OpOverload, args: Any, kwargs: Any, result: Any) -> None:
            if not work.is_paused:
                work.note(func, args, kwargs, result)
                if base_name(func).startswith(_UNCOUNTED):
                    _forget(result)

    def answer_and_count(
        count: Callable[[Any], int], answer: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        result = answer(*args, **kwargs)
        if not work.is_paused:
            work.numbers += max(count(args[0]), count(result))
        return result

    tensor = torch.Tensor
    readers = (tensor.numpy, tensor.__array__, tensor.tolist)
    one_by_one = (tensor.apply_, tensor.map_, tensor.map2_)
    makers = (torch.tensor, torch.as_tensor, torch.asarray, tensor.new_tensor, tensor.new)
    printers = (tensor.__repr__, tensor.__format__)
    overrides = gpu._service.overrides
    before = dict(overrides)
    for count, functions in (
        (elements, (*readers, *one_by_one, *makers)),
        (_printed, printers),
    ):
        for function in functions:
            answer = overrides.get(function, function)
            overrides[function] = partial(answer_and_count, count, answer)
    try:
        with gpu.machine.observing(Counting()):
            yield
    finally:
        overrides.clear()
        overrides.update(before)


def _forget(tensor: torch.Tensor) -> None:
    """Overwrite new, uninitialized memory, which may still contain results of the reference."""
    if tensor.device.type != "meta" and not tensor.is_quantized:
        is_number = tensor.is_floating_point() or tensor.is_complex()
        tensor.fill_(float("nan") if is_number else 1)


def _printed(value: Any) -> int:
    """Count the numbers of a tensor's text: all of them, or some at each end of each dimension."""
    from torch._tensor_str import PRINT_OPTS

    if elements(value) <= PRINT_OPTS.threshold:
        return elements(value)
    return int(min(elements(value), (2 * PRINT_OPTS.edgeitems) ** value.dim()))
