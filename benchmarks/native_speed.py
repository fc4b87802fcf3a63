"""Table of docs/native.md: CPU time of a step on both engines, on meta tensors, and of MemTracker.

The ways take turns in one run, so that all meet the same machine; CPU time leaves out what other
programs on it take. The native engine's steps run in a process of its own each round.

    vramlab native setup --cudnn
    python -m benchmarks.native_speed            minutes; writes native_speed.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from benchmarks.ways import ONCE, Training, Way, Workload, measure
from vramlab import catalogue, native

RESULTS_FILE = Path(__file__).with_name("native_speed.json")
"""What was measured; made on a machine with the native engine."""

NATIVE = ("native", "native, values kept", "native, reported")
_GPU = "A100-80GB"
"""The GPU of the portable engine's way, too."""


def gpt2(device: str) -> Training:
    """GPT-2 small, 8 x 1024 tokens, AdamW."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return _language(GPT2LMHeadModel, GPT2Config(), 8, 1024, device)


def llama_1b(device: str) -> Training:
    """A Llama of the sizes of Llama 3.2 1B, 1 x 2048 tokens, AdamW."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128_256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    )
    return _language(LlamaForCausalLM, config, 1, 2048, device)


def resnet50(device: str) -> Training:
    """ResNet-50, 32 images of 224 x 224, SGD with momentum."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig()
    config.num_labels = 1000
    with torch.device(device):
        model = ResNetForImageClassification(config)
        images, labels = torch.zeros(32, 3, 224, 224), torch.zeros(32, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        model(pixel_values=images, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return Training(model, optimizer, step)


def _language(
    kind: Callable[..., torch.nn.Module], config: object, batch: int, length: int, device: str
) -> Training:
    with torch.device(device):
        model = kind(config)
        tokens = torch.zeros((batch, length), dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return Training(model, optimizer, step)


WORKLOADS: Mapping[str, Workload] = {"gpt2": gpt2, "resnet50": resnet50, "llama_1b": llama_1b}


@contextlib.contextmanager
def _as_it_is(workload: Workload) -> Iterator[Callable[[], None]]:
    yield workload("cuda").step


@contextlib.contextmanager
def _with_values(workload: Workload) -> Iterator[Callable[[], None]]:
    from vramlab.native.values import KnownValues

    with KnownValues():
        yield workload("cuda").step


@contextlib.contextmanager
def _reported(workload: Workload) -> Iterator[Callable[[], None]]:
    """As `vramlab run` does: steps 2 to 5 begin the report; what is measured comes later."""
    from vramlab.native.values import KnownValues
    from vramlab.report.evidence.history_watch import HistoryWatch

    with HistoryWatch(1), KnownValues():
        step = workload("cuda").step
        for _ in range(_STEPS_OF_A_PEAK):
            step()
        yield step


_STEPS_OF_A_PEAK = 4
"""After which the report knows what the peak's blocks are, and reads no more of the history."""

_INSIDE: Mapping[str, Way] = dict(zip(NATIVE, (_as_it_is, _with_values, _reported), strict=True))


def measure_all(rounds: int) -> dict[str, dict[str, list[float]]]:
    """CPU seconds of one step, by workload and way, for each round.

    Raises:
        NativeEngineError: the native engine is not set up.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for name, workload in WORKLOADS.items():
        seconds = found.setdefault(name, {})
        for number in range(rounds):
            slow = () if number else ONCE
            here = measure(workload, 1, ("bare meta", "virtual GPU", *slow))
            for way, times in (_measure_natively(name) | here).items():
                seconds.setdefault(way, []).extend(times)
    return found


def _measure_natively(name: str) -> dict[str, list[float]]:
    version = torch.__version__.partition("+")[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "seconds.json")
        words = ["-m", __spec__.name, "--inside", name, str(file)]
        root = str(Path(__file__).parents[1])
        base = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        status, _ = native.run(native.find(version), words, catalogue.find(_GPU), base=base)
        if status:
            raise SystemExit(f"{name} ended with status {status} on the native engine")
        seconds: dict[str, list[float]] = json.loads(file.read_text(encoding="utf-8"))
        return seconds


def markdown() -> str:
    """The part of docs/native.md."""
    data = json.loads(RESULTS_FILE.read_text(encoding="utf-8"))
    lines = [
        "| a training step | native | native, values kept | native under `vramlab run` | portable "
        "| bare meta tensors | MemTracker | reported : native "
        "| native : portable : bare meta : MemTracker |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, seconds in data["seconds"].items():
        least = {way: min(times) for way, times in seconds.items()}
        others = ("virtual GPU", "bare meta", *ONCE)
        cells = [f"{least[way] * 1e3:,.0f} ms" for way in (*NATIVE, *others)]
        cells.append(f"{least[NATIVE[2]] / least['native']:.1f}")
        cells.append(" : ".join(["1", *(f"{least[way] / least['native']:,.0f}" for way in others)]))
        about = (WORKLOADS[name].__doc__ or name).rstrip(".")
        lines.append(f"| {about} | {' | '.join(cells)} |")
    rounds = len(next(iter(data["seconds"].values()))["native"])
    how = f"the least of {rounds} rounds in one run"
    return "\n".join(
        [
            *lines,
            "",
            f"CPU time, {how} (of MemTracker the first); PyTorch {data['torch']}, {_GPU}, "
            f"{data['cores']} cores, {data['load']:.0f} programs wanting them on average. "
            "`python -m benchmarks.native_speed` measures it.",
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and keep what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.native_speed")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--inside", nargs=2, metavar=("WORKLOAD", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.inside is not None:
        name, file = arguments.inside
        seconds = measure(WORKLOADS[name], 1, NATIVE, ways=_INSIDE)
        Path(file).write_text(json.dumps(seconds), encoding="utf-8")
        return 0
    data = {
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "seconds": measure_all(arguments.rounds),
        "load": os.getloadavg()[1],
    }
    RESULTS_FILE.write_text(f"{json.dumps(data, indent=1)}\n", encoding="utf-8")
    print(markdown(), file=sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
