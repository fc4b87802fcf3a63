"""What PyTorch's host code computes for GPUs without a recording: assets/recordings/computed.

vramlab native setup --torch 2.13.0 --cudnn     each PyTorch once
python -m benchmarks.computed                   every GPU: all rules, and a few programs
python -m benchmarks.computed --gpu T4 --torch 2.13.0 --programs

Each is recorded on the native engine, and kept as numbers beside what is there of other entries.
Then the portable engine is compared with it, for the table of docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import native, neutral
from benchmarks.estimates.results import RECORDINGS
from vramlab.recordings.store import RecordingFile
from vramlab.streams import print_error

FOLDER = RECORDINGS / "computed"
GPUS = ("T4", "V100-16GB", "RTX-3060", "RTX-4090", "A100-40GB", "H100", "H200", "B200")
"""One of each compute capability, and of the common sizes."""
RELEASES = ("2.11.0", "2.13.0", "2.14.1", "2.15.0")
"""The oldest that vramlab takes, and those since rules changed."""
FOR_CUDA_12 = "2.10.0"
"""The last release whose wheel on PyPI is for CUDA 12, which knows GPUs before capability 7.5."""
FEW = (
    "rule/*",
    "experiment/attention-kinds",
    "experiment/operators-save",
    "experiment/precision-modes",
    "zoo/mlp-1024x4-b256-autocast-fp16-adamw",
    "zoo/vit-base-b32-fp32-adamw-sdpa",
    "zoo/lstm-b32-s128-fp32-adamw",
    "zoo/bert-base-b32-s128-autocast-fp16-adamw-efficient",
    "zoo/gpt2-b8-s1024-fp32-adamw-sdpa",
)
"""What depends most on the GPU: single ops, and a program of each kind."""
PROGRAMS = ("experiment/*", "zoo/*")


def compute(gpu: str, release: str, folder: Path, patterns: Sequence[str]) -> Path:
    """Record a GPU on the native engine, without stacks; the recording's file.

    Args:
        gpu: its name in the catalogue.
        release: of a PyTorch that is set up.
        folder: where traces may lie.
        patterns: which entries; none: all.
    """
    words = ["record", "--engine", "native", "--gpu", gpu, "--torch-version", release]
    words += ["--stacks", "none", "--out", str(folder)]
    words += [word for pattern in patterns for word in ("--only", pattern)]
    # The status says whether an entry failed, and some do: they do not fit on that GPU.
    subprocess.run([sys.executable, "-m", "vramlab", *words], stdout=sys.stderr)
    (path,) = folder.glob("*.json")
    return path


def _kept(recording: Path) -> Path:
    return RecordingFile.open(recording).keep_numbers(FOLDER)


def compare(recording: Path, folder: Path, patterns: Sequence[str] = ()) -> Path:
    """Compare the portable engine with a recording; return the comparison's file.

    Args:
        recording: of the native engine.
        folder: where the file goes.
        patterns: which entries; none: all that were recorded.
    """
    out = folder / f"{recording.name}.comparison"
    words = ["compare", str(recording), "--json"]
    words += [word for pattern in patterns for word in ("--only", pattern)]
    with out.open("w", encoding="utf-8") as file, neutral.environment():
        subprocess.run([sys.executable, "-m", "vramlab", *words], stdout=file)
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Compute and compare what is asked for, one after the other; each is kept when it is done."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.computed")
    parser.add_argument("--gpu", action="append", choices=GPUS, help="may come again; default: all")
    parser.add_argument(
        "--torch", action="append", choices=(*RELEASES, FOR_CUDA_12), help="as well"
    )
    parser.add_argument("--all", action="store_true", help="every entry, which takes long")
    parser.add_argument(
        "--programs", action="store_true", help="every program: ten minutes for each GPU"
    )
    parser.add_argument("--compare-only", action="store_true", help="take what was computed before")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="compare these; default: all"
    )
    arguments = parser.parse_args(argv)
    patterns = () if arguments.all else PROGRAMS if arguments.programs else FEW
    for release in arguments.torch or RELEASES:
        for gpu in arguments.gpu or GPUS:
            with tempfile.TemporaryDirectory(prefix="vramlab-computed-") as name:
                folder = Path(name)
                kept = FOLDER / f"{gpu.lower()}-torch{release}.json.gz"
                if not arguments.compare_only:
                    print_error(f"{gpu}, PyTorch {release}: on the native engine")
                    kept = _kept(compute(gpu, release, folder, patterns))
                elif not kept.exists():
                    print_error(f"{gpu}, PyTorch {release}: nothing was computed")
                    continue
                print_error(f"{gpu}, PyTorch {release}: on the portable engine")
                only = arguments.only or (PROGRAMS if arguments.programs else ())
                native.main([str(compare(kept, folder, only))])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
