"""`vramlab record`: measure every experiment and every workload of the zoo on this machine's GPU.

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
        help="measure experiments and models on this machine's GPU, for `vramlab compare`",
        description="Run every experiment and every workload of the zoo on this machine's GPU, "
        "each in a process of its own, and write what they take to "
        "FOLDER/<gpu>-torch<version>.json. Nothing else should use the GPU meanwhile. Started "
        "again, it goes on where it stopped, and tries again what failed. Ends with status 1 if "
        "something failed.",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="record entries that fit: a part of the id, or with wildcards; may come again",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help=f"where the recording is or will be (default: {DEFAULT_FOLDER}, which is for what was "
        "measured: --engine native needs another)",
    )
    parser.add_argument(
        "--again", action="store_true", help="also record what is in the recording already"
    )
    parser.add_argument("--list", action="store_true", help="print the ids, and record nothing")
    parser.add_argument(
        "--timeout",
        type=positive,
        default=180.0,
        metavar="SECONDS",
        help="how long one entry may take (default: %(default)g)",
    )
    parser.add_argument(
        "--stacks",
        choices=("all", "python", "none"),
        default="all",
        help="what traces tell of an allocation: C++ frames, and with them the op, Python's alone, "
        "or nothing (default: all)",
    )
    parser.add_argument(
        "--virtual", metavar="NAME", help="record a virtual GPU instead, to try the commands"
    )
    parser.add_argument(
        "--torch-version",
        metavar="VERSION",
        help=f"the PyTorch whose rules a virtual GPU follows: {KNOWN} (default: the installed one, "
        "whose autograd runs in any case), or that runs on the native engine",
    )
    parser.add_argument(
        "--engine",
        choices=("native",),
        help="record what PyTorch's own CUDA code does on a GPU that is not there; see "
        "`vramlab native`",
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help="the GPU that the native engine describes (see `vramlab gpus`)",
    )
    parser.add_argument(
        "--count",
        type=at_least_one,
        default=1,
        help="how many of them the native engine has (default: 1)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Record, and tell how it goes; answer the exit status.

    Raises:
        VramlabError: nothing to record or to write to; the message says what to do.
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
        print(f"; {counts['skipped']} need more GPUs", end="")
    print(f"; {failed} failed: the same command tries them again" if failed else "")
    return _EXIT_SOME_FAILED if failed else _EXIT_OK


def _record_natively(arguments: argparse.Namespace) -> int:
    """Run this command in a process on the native engine."""
    if arguments.gpu is None or arguments.out is None or arguments.virtual is not None:
        raise VramlabError(
            "--engine native needs --gpu NAME, the GPU to describe, and --out FOLDER, for what is "
            "computed is not to lie among what was measured; --virtual is for the other engine"
        )
    choice = choose("native", arguments.torch_version)
    return run_command(choice, arguments.words, catalogue.find(arguments.gpu), arguments.count)


def _print_progress(progress: RecordingProgress) -> None:
    entry = progress.entry
    width = len(str(progress.count))
    line = f"[{progress.number:{width}}/{progress.count}] {progress.name}: "
    if progress.known:
        line += "is there already"
    elif entry.status != "ok":
        line += f"{entry.status.upper()}: {entry.error}"
    else:
        line += f"{entry.seconds:.1f} s"
        if entry.stages:
            peak_bytes = max(stage.peak_bytes for stage in entry.stages)
            line += f", peak {peak_bytes / GIB:.2f} GiB"
    print(line, flush=True)
