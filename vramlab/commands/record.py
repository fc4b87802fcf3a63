"""`vramlab record`: measure experiments and models on this machine's GPU.

$ vramlab record
$ vramlab record --only 'zoo/gpt2-*' --only context
$ vramlab record --virtual H200 --out /tmp/recordings
$ vramlab record --engine native --gpu H200 --out /tmp/recordings
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from vramlab import catalogue
from vramlab.errors import VramlabError
from vramlab.native.choice import choose, is_inside, run_command
from vramlab.option_values import at_least_one, positive
from vramlab.torch_versions import KNOWN
from vramlab.units import GIB

if TYPE_CHECKING:
    from vramlab.recordings.record import RecordingProgress

_EXIT_OK = 0
_EXIT_SOME_FAILED = 1

DEFAULT_FOLDER = Path("assets", "recordings")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `record` to the command line."""
    parser = subparsers.add_parser(
        "record",
        help="measure experiments and models on a real GPU, for `vramlab compare`",
        description="Run every experiment and model workload on this machine's GPU, each in a "
        "separate process, and write the measurements to FOLDER/<gpu>-torch<version>.json. No "
        "other program should use the GPU meanwhile. If you run the command again, it resumes and "
        "retries failed entries. The exit status is 1 if an entry failed.",
        examples=(
            "vramlab record",
            "vramlab record --only 'zoo/gpt2-*' --only context",
            "vramlab record --virtual H200 --out /tmp/recordings",
        ),
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="record only entries whose id contains PATTERN or matches it as a wildcard; "
        "repeatable (default: all entries)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="folder of the recording, created if missing; required with --engine native "
        f"(default: {DEFAULT_FOLDER})",
    )
    parser.add_argument(
        "--again", action="store_true", help="record entries again that are already recorded"
    )
    parser.add_argument("--list", action="store_true", help="list the ids of the entries and exit")
    parser.add_argument(
        "--timeout",
        type=positive,
        default=180.0,
        metavar="SECONDS",
        help="time limit per entry, in seconds (default: %(default)g)",
    )
    parser.add_argument(
        "--stacks",
        choices=("all", "python", "none"),
        default="all",
        help="stack frames to record per allocation: all (Python and C++, which also identifies "
        "the op), python, or none (default: all)",
    )
    parser.add_argument(
        "--virtual",
        metavar="NAME",
        help="record a virtual GPU instead of a real one, to try out this command",
    )
    parser.add_argument(
        "--torch-version",
        metavar="VERSION",
        help=f"PyTorch version to simulate with --virtual ({KNOWN}), or to run with "
        "--engine native (default: the installed version)",
    )
    parser.add_argument(
        "--engine",
        choices=("native",),
        help="record PyTorch's CUDA build on the native engine, see `vramlab native`; needs --gpu "
        "and --out",
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help="GPU that the native engine simulates, as listed by `vramlab gpus`",
    )
    parser.add_argument(
        "--count",
        type=at_least_one,
        default=1,
        metavar="N",
        help="number of GPUs that the native engine simulates (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Record, print progress, and return the exit status.

    Raises:
        VramlabError: No GPU, no matching entry, or a folder that cannot be written.
    """
    from vramlab.recordings.entries import all_entries, select

    names = select(all_entries(), arguments.only)
    if arguments.list:
        print("\n".join(names))
        return _EXIT_OK

    if arguments.engine == "native" and not is_inside():
        return _record_natively(arguments)

    from vramlab.recordings.record import record
    from vramlab.recordings.worker import Target

    started = time.perf_counter()
    recording = record(
        names,
        arguments.out or DEFAULT_FOLDER,
        Target(arguments.virtual, arguments.torch_version, arguments.stacks),
        again=arguments.again,
        timeout_s=arguments.timeout,
        report=_print_progress,
    )
    counts = Counter(recording.entries[name].status for name in names)
    failed = counts.total() - counts["ok"] - counts["skipped"]
    seconds = time.perf_counter() - started
    print(f"{recording.path}: {counts['ok']} of {len(names)} recorded, {seconds:.0f} s", end="")
    if counts["skipped"]:
        print(f"; {counts['skipped']} skipped (need more GPUs)", end="")
    print(f"; {failed} failed: run the command again to retry" if failed else "")
    return _EXIT_SOME_FAILED if failed else _EXIT_OK


def _record_natively(arguments: argparse.Namespace) -> int:
    """Run this command again in a process on the native engine."""
    if arguments.virtual is not None:
        raise VramlabError("--virtual cannot be combined with --engine native: use one of them")
    if arguments.gpu is None or arguments.out is None:
        raise VramlabError(
            "--engine native needs --gpu NAME (the GPU to simulate) and --out FOLDER (so that "
            "simulated and measured recordings stay apart)"
        )
    choice = choose("native", arguments.torch_version)
    return run_command(choice, arguments.words, catalogue.find(arguments.gpu), arguments.count)


def _print_progress(progress: RecordingProgress) -> None:
    entry = progress.entry
    width = len(str(progress.count))
    line = f"[{progress.number:{width}}/{progress.count}] {progress.name}: "
    if progress.known:
        line += "already recorded"
    elif entry.status != "ok":
        line += f"{entry.status.upper()}: {entry.error}"
    else:
        line += f"{entry.seconds:.1f} s"
        if entry.stages:
            peak_bytes = max(stage.peak_bytes for stage in entry.stages)
            line += f", peak {peak_bytes / GIB:.2f} GiB"
    print(line, flush=True)
