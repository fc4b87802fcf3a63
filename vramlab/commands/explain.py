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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramlab.explaining.message import OutOfMemory

_EXIT_OK = 0


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
        ),
    )
    parser.add_argument(
        "file",
        help="log file, memory snapshot, or folder of snapshots; may be compressed (gzip, xz); "
        "- reads standard input",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with sizes in bytes")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation and return the exit status.

    Raises:
        VramlabError: The file is unreadable, or contains no out-of-memory message.
    """
    from vramlab.explaining import message
    from vramlab.explaining.unpickling import STDIN, is_pickle, read_bytes, snapshots_in

    paths = snapshots_in(arguments.file)
    if paths != [arguments.file]:
        return _explain_snapshots([(path, read_bytes(path)) for path in paths], arguments.json)
    shown = "standard input" if arguments.file == STDIN else arguments.file
    data = read_bytes(arguments.file)
    if is_pickle(data, shown):
        return _explain_snapshots([(shown, data)], arguments.json)
    try:
        messages = message.find_messages(data.decode("utf-8-sig", "replace"))
    except message.NoMessage as error:
        raise message.NoMessage(f"{shown}: {error}") from None
    if arguments.json:
        print(json.dumps([_as_dict(each, messages) for each in messages], indent=2))
    else:
        print(message.as_text(messages, shown))
    return _EXIT_OK


def _explain_snapshots(snapshots: Sequence[tuple[str, bytes]], as_json: bool) -> int:
    from vramlab.explaining.explanation import explain_data
    from vramlab.explaining.shown import imbalance
    from vramlab.progress import working

    explained = []
    for shown, data in snapshots:
        with working(f"replaying {shown}"):
            explained.append(explain_data(data, shown))
    if as_json:
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
