"""Random programs, compared with an independent count: live storages of plain meta tensors.

PyTorch's meta device knows nothing of GPUs, allocators or this package. What it keeps alive, each
storage rounded up to 512 bytes, is what a GPU has allocated, as long as no block has an
unsplit remainder: below 1 MiB there is none.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._python_dispatch import TorchDispatchMode

from vramlab.gpu import VirtualGPU

OPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, y: x + y.mean(),
    "mul": lambda x, y: x * 2,
    "exp": lambda x, y: x.exp(),
    "sigmoid": lambda x, y: x.sigmoid(),
    # Not of detach(): autograd refuses backward where an op has saved what is changed since.
    "in place": lambda x, y: x.data.mul_(2),
    "view": lambda x, y: x.flatten(),
    "slice": lambda x, y: x[: max(1, x.size(0) // 2)],
    "transposed": lambda x, y: x.transpose(0, -1),
    "copied": lambda x, y: x.transpose(0, -1).contiguous(),
    "expanded": lambda x, y: x[None].expand(2, *x.shape),
    "cast": lambda x, y: x.double().float(),
    "compared": lambda x, y: (x > 0).float(),
    "softmax": lambda x, y: x.softmax(-1),
    "cat": lambda x, y: torch.cat([x.flatten(), y.flatten()]),
    "stack": lambda x, y: torch.stack([x, x]),
    "where": lambda x, y: torch.where(x > 0, x, 0.0),
    "clone": lambda x, y: x.clone(),
    "detach": lambda x, y: x.detach(),
    "gelu": lambda x, y: torch.nn.functional.gelu(x),
}

# What happens in one step: an op on two of the kept tensors, the index of one to drop, or backward.
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*OPS, "drop", "drop", "backward"]), st.integers(0, 9), st.integers(0, 9)
    ),
    max_size=25,
)


class LiveStorages(TorchDispatchMode):
    """Adds up the storages that ops have made on the meta device and that still live."""

    def __init__(self) -> None:
        super().__init__()
        self.live: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for output in result if isinstance(result, tuple | list) else [result]:
            if isinstance(output, Tensor):
                storage = output.untyped_storage()
                self.live[storage] = -(-storage.nbytes() // 512) * 512
        return result

    @property
    def allocated(self) -> int:
        return sum(self.live.values())


def history(device: str, steps: list[tuple[str, int, int]], allocated: Callable[[], int]) -> Any:
    """Run the program on a device: what is allocated after each step."""
    kept = [
        torch.ones(size, device=device, requires_grad=True) for size in ((6, 4), (130,), (3, 3))
    ]
    counts = [allocated()]
    for name, first, second in steps:
        x, y = kept[first % len(kept)], kept[second % len(kept)]
        if name == "drop":
            if len(kept) > 3:
                del kept[3 + first % (len(kept) - 3)]
        elif name == "backward":
            if x.requires_grad and x.numel() < 10_000:
                x.sum().backward(retain_graph=True)
        elif x.numel() < 10_000 and y.numel() < 10_000:
            kept.append(OPS[name](x, y))
        del x, y
        counts.append(allocated())
    return counts


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_allocated_is_what_lives(steps: list[tuple[str, int, int]]) -> None:
    with LiveStorages() as storages:
        expected = history("meta", steps, lambda: storages.allocated)
    with VirtualGPU("A100-40GB"):
        counted = history("cuda", steps, torch.cuda.memory_allocated)
    assert counted == expected


def test_torchs_own_tracker_agrees_on_a_training_step() -> None:
    # MemTracker knows no allocator and no kernel: on a program whose kernels take nothing besides
    # their outputs, its peak of parameters, gradients, activations and temporaries is ours.
    def step(device: str) -> None:
        weight = torch.ones(64, 32, device=device, requires_grad=True)
        x = torch.ones(64, 32, device=device)
        for _ in range(2):
            ((weight * x).sigmoid().exp() * x).sum().backward()
            with torch.no_grad():
                weight.sub_(weight.grad)
            weight.grad = None

    tracker = MemTracker()
    with tracker:
        step("cpu")
    peaks = tracker.get_tracker_snapshot("peak")
    with VirtualGPU("A100-40GB"):
        step("cuda")
        peak = torch.cuda.max_memory_allocated()
    # on the CPU it does not round: two numbers, the loss and its gradient, are 4 B there
    assert peak == peaks[torch.device("cpu")]["Total"] + 2 * (512 - 4)
