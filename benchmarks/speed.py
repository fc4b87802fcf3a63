"""What a training step costs on the virtual GPU, beside the same step without any accounting.

Every workload is trained on bare meta tensors, on the virtual GPU and under torch's MemTracker, in
turn, in one run; what counts is the ratio. It can be below 1: the virtual GPU remembers the shapes
that it has seen (`vramlab/gpu/core/inferred_shapes.py`), where meta tensors ask Python each time.
Growing models show whether the cost grows as the work does: the exponent of a power law through the
times is 1 for linear growth.

    python benchmarks/speed.py              all of it: some minutes
    python benchmarks/speed.py bert         BERT-base, batch 32 of 512 tokens
    python benchmarks/speed.py ops          10 to 10,000 small ops
    python benchmarks/speed.py layers       1 to 96 transformer layers
    python benchmarks/speed.py parameters   AdamW, one parameter after the other
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import log

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from benchmarks.ways import WAYS, Training, measure

Seconds = Mapping[str, Sequence[float]]

OPS = (10, 100, 1000, 10_000)
LAYERS = (1, 4, 12, 32, 96)
PARAMETERS = (10, 100, 1000)
_TOO_LONG_S = 5.0


def bert(
    device: str, layers: int = 12, batch: int = 32, length: int = 512, foreach: bool | None = None
) -> Training:
    """BERT with AdamW.

    Args:
        device: meta or cuda.
        layers: how many.
        batch: sequences a step.
        length: tokens a sequence.
        foreach: AdamW in one call over all parameters (True), parameter by parameter (False), or as
            PyTorch decides: in one call on CUDA, and so on the virtual GPU, but not on meta.
    """
    with torch.device(device):
        model = BertModel(BertConfig(num_hidden_layers=layers))
        tokens = torch.zeros((batch, length), dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)

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
        """A scalar."""
        x: Tensor = self.weight
        for _ in range(self.ops):
            x = x * 2.0
        return x.sum()


def chain(device: str, ops: int) -> Training:
    """A chain of small ops, forward and backward, with SGD."""
    with torch.device(device):
        model = Chain(ops)
    optimizer = torch.optim.SGD(model.parameters(), foreach=False)

    def step() -> None:
        model().backward()
        optimizer.step()
        optimizer.zero_grad()

    return Training(model, optimizer, step)


def many_parameters(device: str, parameters: int) -> Training:
    """AdamW's loop over small parameters that have gradients: the optimizer's step alone."""
    with torch.device(device):
        model = nn.ParameterList([torch.zeros(16) for _ in range(parameters)])
    for parameter in model:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        optimizer.step()

    return Training(model, optimizer, step)


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The exponent p of the power law c·size^p through the times: least squares of logarithms.

    Raises:
        ValueError: fewer than two different sizes do not make a line.
    """
    if len(set(sizes)) < 2:
        raise ValueError(f"a power law needs two sizes or more, not {list(sizes)}")
    xs, ys = [log(size) for size in sizes], [log(second) for second in seconds]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - x_mean) ** 2 for x in xs)


def best(seconds: Seconds) -> dict[str, float]:
    """The least of each way's rounds: whatever disturbs a measurement makes it longer."""
    return {name: min(times) for name, times in seconds.items()}


def table(measured: Mapping[str, Seconds]) -> str:
    """One line for each workload: best milliseconds of each way, ratios to bare meta, and noise.

    Args:
        measured: by the workload's name, seconds for each way and round; a way may be missing.
    """
    counted = [name for name in WAYS if name != "bare meta"]
    lines = [
        f"{'':<24}"
        + "".join(f"{name + ' ms':>16}" for name in WAYS)
        + "".join(f"{'x ' + name:>16}" for name in counted)
        + f"{'spread':>9}"
    ]
    for workload, seconds in measured.items():
        least = best(seconds)
        lines.append(
            f"{workload:<24}"
            + "".join(_cell(least.get(name), 1e-3) for name in WAYS)
            + "".join(_cell(least.get(name), least["bare meta"]) for name in counted)
            + f"{spread(seconds):>9.0%}"
        )
    return "\n".join(lines)


def _cell(seconds: float | None, unit: float) -> str:
    return f"{'-':>16}" if seconds is None else f"{seconds / unit:>16.2f}"


def spread(seconds: Seconds) -> float:
    """How noisy it was: the largest of the ways' differences of worst and best, over the best."""
    return max((max(times) - min(times)) / min(times) for times in seconds.values())


def growth(sizes: Sequence[int], measured: Sequence[Seconds]) -> str:
    """The exponents of each way's growth, over all its sizes and over its two largest."""
    lines = []
    for name in WAYS:
        there = [(size, best(seconds)) for size, seconds in zip(sizes, measured, strict=True)]
        grown = [size for size, least in there if name in least]
        times = [least[name] for _, least in there if name in least]
        lines.append(
            f"{name:<12} time grows as size^{exponent(grown, times):.2f}, "
            f"between the two largest as size^{exponent(grown[-2:], times[-2:]):.2f}"
        )
    return "\n".join(lines)


def _grow(unit: str, make: Callable[..., Training], sizes: Sequence[int], rounds: int) -> None:
    """Measure from small to large; a way is left out once a step of it has taken too long."""
    measured: list[Seconds] = []
    names = list(WAYS)
    for size in sizes:
        measured.append(measure(partial(make, **{unit: size}), rounds, names))
        names = [name for name in names if best(measured[-1])[name] < _TOO_LONG_S]
    of_size = [f"{size:,} {unit}" for size in sizes]
    print(table(dict(zip(of_size, measured, strict=True))))
    print(growth(sizes, measured), end="\n\n")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = ("bert", "ops", "layers", "parameters")
    parser.add_argument("what", nargs="*", default=known, help=f"any of {', '.join(known)}")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if unknown := set(options.what) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    print(f"PyTorch {torch.__version__}, the best of {options.rounds} rounds, CPU time\n")
    if "bert" in options.what:
        variants = {"BERT, AdamW as it is": None, "BERT, AdamW's loop": False}
        print(
            table(
                {
                    name: measure(partial(bert, foreach=foreach), options.rounds)
                    for name, foreach in variants.items()
                }
            ),
            end="\n\n",
        )
    if "ops" in options.what:
        _grow("ops", chain, OPS, options.rounds)
    if "layers" in options.what:
        _grow("layers", partial(bert, batch=1, length=64), LAYERS, options.rounds)
    if "parameters" in options.what:
        _grow("parameters", many_parameters, PARAMETERS, options.rounds)


if __name__ == "__main__":
    main()
