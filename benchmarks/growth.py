"""Table of docs/native.md: how time and memory of a step grow with parameters and with ops.

Each is measured in a process of its own, so that its peak of memory is of that one alone: a forward
pass of Llamas of 1 to 70 billion parameters, and chains of ops, forward and backward.

    vramlab native setup --torch 2.13.0
    python -m benchmarks.growth                  minutes; writes growth.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import nn

import vramlab
from benchmarks.ways import WAYS, Training, Way, Workload, measure
from vramlab import catalogue, native
from vramlab.progress import working
from vramlab.units import GIB, KIB

RESULTS_FILE = Path(__file__).with_name("growth.json")
"""What was measured; made on a machine with the native engine."""

NATIVE, PORTABLE, META, TRACKER = "native", "virtual GPU", "bare meta", "MemTracker"
_GPU = "B200"
"""70 billion parameters in bfloat16 take 141 GB: it has room for them."""


def llama(layers: int, hidden: int, feed_forward: int, heads: int, device: str) -> Training:
    """Build a Llama in bfloat16, whose step is a forward pass of 2048 tokens without gradients."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128_256,
        hidden_size=hidden,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        tie_word_embeddings=hidden == 2048,
        dtype="bfloat16",
    )
    with torch.device(device):
        model = LlamaForCausalLM(config).bfloat16()
        tokens = torch.zeros((1, 2048), dtype=torch.long)

    def step() -> None:
        with torch.inference_mode():
            model(input_ids=tokens)

    return Training(model, torch.optim.SGD(model.parameters()), step)


def chain(ops: int, device: str) -> Training:
    """Build a chain of sines of 256 numbers, each kept for the backward pass."""
    model = nn.Linear(256, 1, device=device)

    def step() -> None:
        values = model.weight
        for _ in range(ops):
            values = values.sin()
        values.sum().backward()
        model.zero_grad()

    return Training(model, torch.optim.SGD(model.parameters()), step)


CASES: Mapping[str, Workload] = {
    "Llama of 1.2 billion parameters, forward": partial(llama, 16, 2048, 8192, 32),
    "Llama of 70.6 billion parameters, forward": partial(llama, 80, 8192, 28672, 64),
    "1,000 sines, forward and backward": partial(chain, 1_000),
    "100,000 sines, forward and backward": partial(chain, 100_000),
}
_TOO_LONG = {(TRACKER, "100,000 sines, forward and backward")}


@contextlib.contextmanager
def _on_cuda(workload: Workload) -> Iterator[Callable[[], None]]:
    yield workload("cuda").step


@contextlib.contextmanager
def _portable(workload: Workload) -> Iterator[Callable[[], None]]:
    with vramlab.VirtualGPU(_GPU):
        yield workload("cuda").step


_INSIDE: Mapping[str, Way] = {**WAYS, NATIVE: _on_cuda, PORTABLE: _portable}

Measured = dict[str, float]
"""CPU seconds of the second step, and the process's peak of memory in bytes."""


def measure_inside(case: str, way: str) -> Measured:
    """Measure one case in one way, in this process."""
    (seconds,) = measure(CASES[case], 1, (way,), ways=_INSIDE)[way]
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    return {"seconds": seconds, "peak_bytes": peak_bytes}


def measure_all() -> dict[str, dict[str, Measured]]:
    """Measure every case in every way, each in a process of its own.

    Raises:
        NativeEngineError: the native engine is not set up.
    """
    found: dict[str, dict[str, Measured]] = {}
    with working("measuring") as progress:
        for case in CASES:
            for way in (NATIVE, PORTABLE, META, TRACKER):
                if (way, case) not in _TOO_LONG:
                    progress.tell(f"{case}, {way}")
                    found.setdefault(case, {})[way] = _measure_outside(case, way)
    return found


def _measure_outside(case: str, way: str) -> Measured:
    root = str(Path(__file__).parents[1])
    base = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "measured.json")
        words = ["-m", __spec__.name, "--inside", case, way, str(file)]
        if way == NATIVE:
            build = native.find(torch.__version__.partition("+")[0])
            status, _ = native.run(build, words, catalogue.find(_GPU), base=base)
        else:
            status = subprocess.run([sys.executable, *words], env=base).returncode
        if status:
            raise SystemExit(f"{case}, {way} ended with status {status}")
        measured: Measured = json.loads(file.read_text(encoding="utf-8"))
        return measured


def markdown() -> str:
    """The part of docs/native.md."""
    data = json.loads(RESULTS_FILE.read_text(encoding="utf-8"))
    lines = [
        "| CPU time, and the process's peak of memory | native | portable | bare meta tensors "
        "| MemTracker |",
        "|---|---|---|---|---|",
    ]
    for case, ways in data["measured"].items():
        cells = [_cell(ways.get(way)) for way in (NATIVE, PORTABLE, META, TRACKER)]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(
        [
            *lines,
            "",
            f"The second step in a process of its own; PyTorch {data['torch']}, {_GPU}, "
            f"{data['cores']} cores, {data['load']:.0f} programs wanting them on average. "
            "`python -m benchmarks.growth` measures it.",
        ]
    )


def _cell(measured: Measured | None) -> str:
    if measured is None:
        return "not measured"
    seconds = measured["seconds"]
    time = f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:,.0f} ms"
    return f"{time}, {measured['peak_bytes'] / GIB:.1f} GiB"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and keep what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth")
    parser.add_argument(
        "--inside", nargs=3, metavar=("CASE", "WAY", "FILE"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args(argv)
    if arguments.inside is not None:
        case, way, file = arguments.inside
        measured = measure_inside(case, way)
        Path(file).write_text(json.dumps(measured), encoding="utf-8")
        return 0
    data = {
        "torch": torch.__version__.partition("+")[0],
        "cores": os.cpu_count(),
        "measured": measure_all(),
        "load": os.getloadavg()[1],
    }
    RESULTS_FILE.write_text(f"{json.dumps(data, indent=1)}\n", encoding="utf-8")
    print(markdown())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
