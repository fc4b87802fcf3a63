"""What a training step costs on the virtual GPU, beside the same step without any accounting.

One run trains BERT-base (batch 32, length 512, AdamW) three ways, in turn, so that all three meet
the same machine:

    bare meta     plain meta tensors: shapes only, nobody counts
    virtual GPU   the same program on a virtual A100
    MemTracker    torch's own tracker over meta tensors: counts, without an allocator

    python benchmarks/training_step.py [--rounds 5] [--batch 32] [--length 512] [--layers 12]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.distributed._tools.mem_tracker import MemTracker
from transformers import BertConfig, BertModel

import vramlab


@dataclass(frozen=True)
class Workload:
    """What is trained.

    Attributes:
        batch: sequences a step.
        length: tokens a sequence.
        layers: layers of the model.
        foreach: AdamW in one call over all parameters (True), parameter by parameter (False), or as
            PyTorch decides: in one call on CUDA, and so on the virtual GPU, but not on meta.
    """

    batch: int
    length: int
    layers: int
    foreach: bool | None = None

    def step(self, device: str) -> Callable[[], None]:
        """Build model, optimizer and batch on `device`; answer what trains one step."""
        with torch.device(device):
            model = BertModel(BertConfig(num_hidden_layers=self.layers))
            tokens = torch.zeros((self.batch, self.length), dtype=torch.long)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=self.foreach)

        def step() -> None:
            model(tokens).last_hidden_state.sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        step.model, step.optimizer = model, optimizer  # type: ignore[attr-defined]
        return step


@contextlib.contextmanager
def bare_meta(workload: Workload) -> Iterator[Callable[[], None]]:
    """Plain meta tensors."""
    yield workload.step("meta")


@contextlib.contextmanager
def virtual_gpu(workload: Workload) -> Iterator[Callable[[], None]]:
    """A virtual A100."""
    with vramlab.VirtualGPU("A100-80GB"):
        yield workload.step("cuda")


@contextlib.contextmanager
def mem_tracker(workload: Workload) -> Iterator[Callable[[], None]]:
    """torch's own tracker over meta tensors."""
    step = workload.step("meta")
    tracker = MemTracker()
    tracker.track_external(step.model, step.optimizer)  # type: ignore[attr-defined]

    def tracked_step() -> None:
        tracker.reset_mod_stats()  # it refuses a second step otherwise
        step()

    with tracker:
        yield tracked_step


WAYS = {"bare meta": bare_meta, "virtual GPU": virtual_gpu, "MemTracker": mem_tracker}


def measure(workload: Workload, rounds: int) -> dict[str, list[float]]:
    """Seconds of one step, for each way and round. The step before it only warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            with way(workload) as step:
                step()
                start = time.perf_counter()
                step()
                seconds[name].append(time.perf_counter() - start)
    return seconds


def table(seconds: dict[str, list[float]]) -> str:
    """Median seconds of each way, and the median over rounds of its ratio to bare meta."""
    lines = [f"{'':<12} {'median s':>9} {'min s':>8} {'max s':>8} {'x bare meta':>12}"]
    for name, times in seconds.items():
        ratios = [mine / bare for mine, bare in zip(times, seconds["bare meta"], strict=True)]
        lines.append(
            f"{name:<12} {statistics.median(times):>9.3f} {min(times):>8.3f} {max(times):>8.3f} "
            f"{statistics.median(ratios):>12.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--layers", type=int, default=12)
    options = parser.parse_args()
    print(f"PyTorch {torch.__version__}, {options.rounds} rounds")
    for foreach in (None, False):
        workload = Workload(options.batch, options.length, options.layers, foreach)
        print(f"\n{workload}")
        print(table(measure(workload, options.rounds)))


if __name__ == "__main__":
    main()
