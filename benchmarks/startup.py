"""What it costs to start: Python itself, vramlab's imports and light commands, and torch beside it.

Every line is a process of its own, all in turn, in one run; what counts are the ratios. Times are
the processor's, so that a machine that does other work meanwhile matters little.

    python -m benchmarks.startup
    python -m benchmarks.startup --rounds 10
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from vramlab.progress import working

PYTHON = "python -c pass"
TORCH = "import torch"

STARTS: Mapping[str, Sequence[str]] = {
    PYTHON: ("-c", "pass"),
    "import vramlab": ("-c", "import vramlab"),
    "import vramlab.allocator": ("-c", "import vramlab.allocator"),
    "import vramlab_course.lessons.l20_zero.formulas": (
        "-c",
        "import vramlab_course.lessons.l20_zero.formulas",
    ),
    "vramlab --help": ("-m", "vramlab", "--help"),
    "vramlab gpus": ("-m", "vramlab", "gpus"),
    "vramlab plan gpt2-xl": ("-m", "vramlab", "plan", "gpt2-xl"),
    TORCH: ("-c", "import torch"),
    "a virtual GPU": ("-c", "import vramlab; vramlab.VirtualGPU('T4').attach()"),
    "vramlab rules mm": ("-m", "vramlab", "rules", "mm"),
    "vramlab experiments": ("-m", "vramlab", "experiments"),
}
"""Words behind `python` for each line: first what needs no torch, then what needs it."""


def seconds_of(words: Sequence[str]) -> float:
    """How long the processor works for `python` with these words, in all its processes."""
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1: such as a plan that does not fit
        raise RuntimeError(f"python {' '.join(words)} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def measure(starts: Mapping[str, Sequence[str]], rounds: int) -> dict[str, float]:
    """The least seconds of each: whatever disturbs a measurement makes it longer."""
    seconds: dict[str, list[float]] = {name: [] for name in starts}
    with working("measuring") as step:
        for number in range(1, rounds + 1):
            for name, words in starts.items():
                step.tell(f"round {number} of {rounds}, {name}")
                seconds[name].append(seconds_of(words))
    return {name: min(each) for name, each in seconds.items()}


def table(seconds: Mapping[str, float]) -> str:
    """One line for each start: milliseconds, and how many times Python's own and torch's."""
    lines = [f"{'':<32}{'ms':>8}{'x python':>12}{'x torch':>12}"]
    for name, each in seconds.items():
        by_python, by_torch = each / seconds[PYTHON], each / seconds[TORCH]
        lines.append(f"{name:<32}{each * 1e3:>8.0f}{by_python:>12.2f}{by_torch:>12.2f}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"Python {sys.version.split()[0]}, the best of {rounds} rounds, CPU time\n")
    print(table(measure(STARTS, rounds)))


if __name__ == "__main__":
    main()
