"""Print what a training step costs on the virtual GPU, beside the same step without accounting.

Each workload is trained on plain meta tensors, on a virtual A100, and under torch's MemTracker, in
turn, in one process. What counts are the ratios: CPU time leaves out what other programs take.

    python -m benchmarks.speed               some minutes
    python -m benchmarks.speed --rounds 1
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed._tools.mem_tracker import MemTracker
from transformers import BertConfig, BertModel

import vramlab


class Training(NamedTuple):
    """A model, its optimizer, and a function that trains one step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[], object]


Workload = Callable[[str], Training]
"""Builds a training on a device: "meta" or "cuda"."""


def bert(device: str, layers: int = 12, batch: int = 32, length: int = 512) -> Training:
    """Build BERT with AdamW's loop, for a batch of sequences."""
    with torch.device(device):
        model = BertModel(BertConfig(num_hidden_layers=layers))
        tokens = torch.zeros((batch, length), dtype=torch.long)
    # On CUDA alone, PyTorch would update all parameters in one call.
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        model(tokens).last_hidden_state.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return Training(model, optimizer, step)


class Chain(nn.Module):
    """Multiplies a small tensor by a number, again and again: one op below autograd each time."""

    def __init__(self, ops: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(16))
        self.ops = ops

    def forward(self) -> Tensor:
        """Return a scalar."""
        x: Tensor = self.weight
        for _ in range(self.ops):
            x = x * 2.0
        return x.sum()


def chain(device: str, ops: int) -> Training:
    """Build a chain of small ops, trained with SGD."""
    with torch.device(device):
        model = Chain(ops)
    optimizer = torch.optim.SGD(model.parameters(), foreach=False)

    def step() -> None:
        model().backward()
        optimizer.step()
        optimizer.zero_grad()

    return Training(model, optimizer, step)


def many_parameters(device: str, parameters: int) -> Training:
    """Build AdamW's loop over small parameters with gradients: a step is the optimizer's alone."""
    with torch.device(device):
        model = nn.ParameterList([torch.zeros(16) for _ in range(parameters)])
    for parameter in model:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    return Training(model, optimizer, optimizer.step)


@contextmanager
def bare_meta(workload: Workload) -> Iterator[Callable[[], object]]:
    """Train on plain meta tensors, which have shapes only."""
    yield workload("meta").step


@contextmanager
def virtual_gpu(workload: Workload) -> Iterator[Callable[[], object]]:
    """Train on a virtual A100."""
    with vramlab.VirtualGPU("A100-80GB"):
        yield workload("cuda").step


@contextmanager
def mem_tracker(workload: Workload) -> Iterator[Callable[[], object]]:
    """Train on meta tensors under torch's own tracker, which has no allocator."""
    model, optimizer, train = workload("meta")
    tracker = MemTracker()
    tracker.track_external(model, optimizer)

    def step() -> None:
        tracker.reset_mod_stats()  # it refuses a second step otherwise
        train()

    with tracker:
        yield step


Way = Callable[[Workload], AbstractContextManager[Callable[[], object]]]

WAYS: Mapping[str, Way] = {
    "bare meta": bare_meta,
    "virtual GPU": virtual_gpu,
    "MemTracker": mem_tracker,
}

WORKLOADS: Mapping[str, Workload] = {
    "BERT-base, 32 x 512": bert,
    "1,000 small ops": partial(chain, ops=1000),
    "1,000 parameters": partial(many_parameters, parameters=1000),
}


def measure(workload: Workload, rounds: int) -> dict[str, float]:
    """Return each way's CPU seconds of one step: the least of all rounds.

    Every round builds the workload again, and its first step only warms up. The ways take turns.
    """
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            with way(workload) as step:
                step()
                gc.collect()
                start = time.process_time()
                step()
                seconds[name].append(time.process_time() - start)
            gc.collect()
    return {name: min(times) for name, times in seconds.items()}


def main() -> None:
    """Measure every workload, and print milliseconds and their ratios to plain meta tensors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each way (default: 3)")
    rounds = parser.parse_args().rounds
    print(f"PyTorch {torch.__version__}, milliseconds, the least of {rounds} rounds, CPU time")
    for name, workload in WORKLOADS.items():
        seconds = measure(workload, rounds)
        bare = seconds["bare meta"]
        each = (f"{way} {s * 1e3:.1f} ({s / bare:.2f}x)" for way, s in seconds.items())
        print(f"{name:<22}", *each, sep="  ", flush=True)


if __name__ == "__main__":
    main()
