"""`vramlab compare`: compare the virtual GPU with a recording, or a snapshot, of a real GPU.

$ vramlab compare assets/recordings/h200-torch2.11.0.json
$ vramlab compare assets/recordings/h200-torch2.11.0.json --only gpt2 --verbose
$ vramlab compare assets/recordings/h200-torch2.11.0.json --with native/h200-torch2.11.0.json
$ vramlab compare snapshot.pickle train.py --batch 4
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from vramlab.errors import VramlabError
from vramlab.streams import print_error

_EXIT_OK = 0
_EXIT_DIFFERENT = 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `compare` to the command line."""
    parser = subparsers.add_parser(
        "compare",
        help="compare the virtual GPU with a recording or snapshot from a real GPU",
        description="For a recording: run the recorded experiments and models on a virtual GPU of "
        "the same model, with the rules of the same PyTorch version, and compare every number to "
        "the byte. For a memory snapshot and its script: run the script on a virtual GPU, and "
        "compare every allocation. The exit status is 1 if there are differences other than the "
        "documented ones.",
        examples=(
            "vramlab compare assets/recordings/h200-torch2.11.0.json",
            "vramlab compare assets/recordings/h200-torch2.11.0.json --only gpt2 --verbose",
            "vramlab compare --gpu A100-80GB snapshot.pickle train.py --batch 4",
        ),
    )
    parser.add_argument(
        "recording",
        type=Path,
        help="recording written by `vramlab record`, or memory snapshot of a real GPU",
    )
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        help="script that left the snapshot, and its arguments",
    )
    _add_options(parser)
    parser.set_defaults(run=run)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpu",
        metavar="MODEL",
        default="H200",
        help="GPU model that left the snapshot (default: H200)",
    )
    parser.add_argument(
        "--torch-version",
        metavar="VERSION",
        help="PyTorch that left the snapshot (default: the installed one)",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="compare only entries whose id contains PATTERN or matches it as a wildcard; "
        "repeatable (default: all entries)",
    )
    parser.add_argument(
        "--with",
        dest="other",
        type=Path,
        metavar="RECORDING",
        help="compare with another recording, for example from the native engine, instead of "
        "running the virtual GPU",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="also print matching numbers, every unmatched allocation, and secondary statistics",
    )
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")


def _read_options_behind(arguments: argparse.Namespace) -> None:
    """Read options between the recording and a program; argparse counts them as the program."""
    parser = argparse.ArgumentParser(prog="vramlab compare", add_help=False)
    _add_options(parser)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    parser.parse_args(arguments.program, namespace=arguments)


def run(arguments: argparse.Namespace) -> int:
    """Print the differences and return the exit status.

    Raises:
        VramlabError: The recording is unreadable, or no entry matches.
    """
    from vramlab.explaining.as_report import is_snapshot

    if arguments.program and arguments.program[0].startswith("-"):
        _read_options_behind(arguments)
    if is_snapshot(arguments.recording):
        return _compare_snapshot(arguments)
    if arguments.program:
        raise VramlabError(
            f"{arguments.recording.name} is a recording, which contains its programs: leave out "
            f"{' '.join(arguments.program)!r}. A snapshot's name ends in .pickle"
        )
    from vramlab.recordings.compare import compare, recorded_in
    from vramlab.recordings.entries import select
    from vramlab.recordings.report import lines_of, summary_lines
    from vramlab.recordings.store import RecordingFile

    recording = RecordingFile.open(arguments.recording)
    names = select(tuple(recording.entries), arguments.only)
    how: dict[str, Any] = {}
    other = None
    if arguments.other is None:
        for note in _notes(recording.machine):
            print_error(note)
    else:
        other = RecordingFile.open(arguments.other)
        how["measure"] = recorded_in(other, names)
    comparisons = []
    for comparison in compare(recording, names, **how):
        comparisons.append(comparison)
        if not arguments.json:
            print("\n".join(lines_of(comparison, verbose=arguments.verbose)), flush=True)
    if arguments.json:
        data = {
            "recording": arguments.recording.name,
            "machine": recording.machine,
            "with": other and other.machine,
            "entries": [comparison.to_dict() for comparison in comparisons],
        }
        print(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        print("\n".join(summary_lines(comparisons)))
    return _EXIT_DIFFERENT if any(result.unexplained for result in comparisons) else _EXIT_OK


def _compare_snapshot(arguments: argparse.Namespace) -> int:
    """Run the script on a virtual GPU, and print how its allocations differ from the snapshot's."""
    from vramlab.explaining.comparison import compare
    from vramlab.explaining.traces import read_gpus
    from vramlab.explaining.unpickling import load_snapshot, read_bytes
    from vramlab.progress import working

    if not arguments.program:
        raise VramlabError(
            "a snapshot is compared with a run of its script: vramlab compare "
            f"{arguments.recording} SCRIPT [ARGUMENTS]"
        )
    real = read_gpus(load_snapshot(read_bytes(f"{arguments.recording}"), f"{arguments.recording}"))
    if not any(gpu.events for gpu in real):
        raise VramlabError(
            f"{arguments.recording} has no events, only what was allocated when it was written. "
            "Call torch.cuda.memory._record_memory_history() at the start of the script"
        )
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "snapshot.pickle")
        words = [sys.executable, "-m", "vramlab", "run", "--gpu", arguments.gpu]
        if arguments.torch_version:
            words += ["--torch-version", arguments.torch_version]
        words += ["--snapshot", f"{written}", *arguments.program]
        with working(f"running {arguments.program[0]} on a virtual {arguments.gpu}"):
            ran = subprocess.run(words, capture_output=True, text=True)
        if not written.exists():
            print_error(ran.stderr.rstrip())
            return ran.returncode or _EXIT_DIFFERENT
        virtual = read_gpus(load_snapshot(written.read_bytes(), f"{written}"))
    compared = compare([gpu for gpu in real if gpu.events], virtual)
    if arguments.json:
        print(json.dumps([each.to_dict() for each in compared], indent=1))
    else:
        print("\n".join(map(str, compared)) or "the script allocated nothing on the GPU")
    return _EXIT_OK if compared and all(each.is_equal for each in compared) else _EXIT_DIFFERENT


def _notes(machine: dict[str, Any]) -> list[str]:
    """Return a note for each package whose installed version differs from the recorded one."""
    from vramlab.recordings.machine import distribution_version

    installed = {name: distribution_version(name) for name in ("torch", "transformers")}
    recorded = {"torch": machine["installed_torch"], "transformers": machine["transformers"]}
    return [
        f"note: recorded with {name} {recorded[name]}, but {name} {installed[name]} is installed; "
        "its Python code may run different ops"
        for name in installed
        if str(installed[name]).partition("+")[0] != str(recorded[name]).partition("+")[0]
    ]
