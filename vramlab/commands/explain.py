"""`vramlab explain`: why a real GPU ran out of memory, and what would help.

$ vramlab explain oom.log
$ python train.py 2>&1 | vramlab explain -
$ vramlab explain snapshot.pickle
$ vramlab explain --json oom.log
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from vramlab import streams
from vramlab.errors import VramlabError

if TYPE_CHECKING:
    from vramlab.explaining.message import OutOfMemory

_EXIT_OK = 0
_EXIT_USAGE = 2


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `explain` to the command line."""
    parser = subparsers.add_parser(
        "explain",
        help="explain an out-of-memory error or a memory snapshot from a real GPU",
        description="Explain an out-of-memory error from a log, or a memory snapshot. For a log "
        "(PyTorch 1.4 or later): show what filled the GPU, the likely cause, and how to record a "
        "snapshot. For a snapshot (PyTorch 2.0 or later): show which tensors and lines the memory "
        "belongs to, and replay the allocations under other allocator settings.",
        examples=(
            "vramlab explain oom.log",
            "python train.py 2>&1 | vramlab explain -",
            "vramlab explain snapshot.pickle",
            "vramlab explain rank0.pickle rank1.pickle",
            "vramlab explain --html report.html snapshot.pickle",
        ),
    )
    parser.add_argument(
        "files",
        metavar="file",
        nargs="+",
        help="log file, memory snapshots, or folder of snapshots; may be compressed (gzip, xz); "
        "- reads standard input",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with sizes in bytes")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="also write the report of a snapshot as a web page, with interactive timelines as "
        "recorded and under each setting",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation and return the exit status.

    Raises:
        VramlabError: The file is unreadable, or contains no out-of-memory message.
    """
    from vramlab.explaining import message
    from vramlab.explaining.unpickling import STDIN, is_pickle, read_bytes, snapshots_in

    if arguments.html and (problem := streams.cannot_write(arguments.html)):
        streams.print_error(problem)
        return _EXIT_USAGE
    paths = [path for file in arguments.files for path in snapshots_in(file)]
    if len(paths) > 1 or paths != arguments.files:
        return _explain_snapshots([(path, read_bytes(path)) for path in paths], arguments)
    (path,) = paths
    shown = "standard input" if path == STDIN else path
    data = read_bytes(path)
    if not data.strip():
        raise VramlabError(f"{shown}: the file is empty; pass a log or a memory snapshot")
    if is_pickle(data, shown):
        return _explain_snapshots([(shown, data)], arguments)
    if arguments.html:
        raise VramlabError(
            f"--html: {shown} is not a memory snapshot. A message has no timeline; record a "
            "snapshot, or leave out --html"
        )
    try:
        messages = message.find_messages(data.decode("utf-8-sig", "replace"))
    except message.NoMessage as error:
        raise message.NoMessage(f"{shown}: {error}") from None
    if arguments.json:
        print(json.dumps([_as_dict(each, messages) for each in messages], indent=2))
    else:
        print(message.as_text(messages, shown))
    return _EXIT_OK


def _explain_snapshots(
    snapshots: Sequence[tuple[str, bytes]], arguments: argparse.Namespace
) -> int:
    from vramlab.explaining.explanation import explain_data
    from vramlab.explaining.shown import imbalance
    from vramlab.progress import working

    explained = []
    for shown, data in snapshots:
        with working(f"replaying {shown}"):
            explained.append(explain_data(data, shown))
    if arguments.html:
        from vramlab.explaining.page import as_page

        Path(arguments.html).write_text(as_page(explained), encoding="utf-8")
    if arguments.json:
        print(json.dumps([each.to_dict() for each in explained], indent=2))
    elif len(explained) == 1:
        print(explained[0], end="")
    else:
        print("\n".join(f"=== {each.path}\n{each}" for each in explained))
        print(
            imbalance(
                [(f"{each.path} cuda:{gpu.device}", gpu) for each in explained for gpu in each.gpus]
            )
        )
    return _EXIT_OK


def _as_dict(each: OutOfMemory, messages: Sequence[OutOfMemory]) -> dict[str, object]:
    from vramlab.explaining.message import explain_reading, reading

    suggested = reading(each, messages)
    return asdict(each) | {
        "reading": suggested.name.lower(),
        "explanation": explain_reading(each, suggested),
    }
