"""`vramlab run train.py`: run a training script on a GPU that is not there, and tell where its
memory went.

$ vramlab run train.py --lr 0.1
$ vramlab run --gpu L4 --steps 3 train.py
$ vramlab run --gpu T4 --alloc-conf expandable_segments:True train.py
$ vramlab run --gpu A100-80GB --count 4 -m package.train

The script runs unmodified; its exit status is this command's. The report goes to stderr, so that
the script's own stdout stays as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from vramlab import catalogue, streams
from vramlab.native.choice import (
    ENGINES,
    ENVIRONMENT,
    Choice,
    choose,
    default_engine,
    run_command,
)
from vramlab.progress import working

if TYPE_CHECKING:
    from vramlab.catalogue import GPUModel
    from vramlab.report.collect import Ground
    from vramlab.report.history_watch import HistoryWatch
    from vramlab.report.program import Program
    from vramlab.report.watch import Watch

_EXIT_USAGE = 2


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `run` to the command line."""
    parser = subparsers.add_parser(
        "run",
        help="run a training script on a virtual GPU, and tell where its memory went",
        description="Run a training script, unmodified, on a virtual GPU, and end with whether it "
        "fits and where its peak of memory came from. The report goes to stderr; the exit status "
        "is the script's.",
        usage="%(prog)s [options] (script.py | -m module) [arguments of the program ...]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        default="A100-40GB",
        help="the GPU; see `vramlab gpus` (default: %(default)s)",
    )
    parser.add_argument(
        "--count", type=_at_least_one, default=1, help="how many of them (default: 1)"
    )
    parser.add_argument(
        "--on-value",
        choices=("nan", "error"),
        default=None,
        help="what a read of a value that does not exist gets, such as loss.item(): nan (0 for "
        "whole numbers), and a note in the report; or an error (default: nan)",
    )
    parser.add_argument(
        "--alloc-conf",
        metavar="SETTINGS",
        help="settings of PyTorch's allocator (default: those of the environment, as "
        "PyTorch reads them: PYTORCH_CUDA_ALLOC_CONF, else PYTORCH_ALLOC_CONF)",
    )
    parser.add_argument(
        "--torch-version",
        metavar="VERSION",
        help="the PyTorch whose rules to follow, such as 2.11, from 1.13 on (default: the one that "
        "is installed, whose autograd runs in any case); on the native engine, the one that runs",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default=default_engine(),
        help="portable: the virtual GPU; native: PyTorch's own CUDA code, see `vramlab native`; "
        f"auto: native where that PyTorch is set up (default: ${ENVIRONMENT}, else auto)",
    )
    parser.add_argument(
        "--streams",
        choices=("early", "late"),
        default="early",
        help="on the native engine, whether events complete at once, or when the program waits "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--steps",
        type=_at_least_one,
        metavar="N",
        help="stop the program after N steps of its optimizers, with exit status 0",
    )
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON, in bytes")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write the report as a page, with a timeline of every block that can be asked",
    )
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        help="record every allocation, and write a snapshot for pytorch.org/memory_viz",
    )
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, help="run a module, as `python -m` does"
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the program and report; answer its exit status."""
    words = arguments.program if arguments.module is None else arguments.module
    if not words:
        arguments.parser.error("a script, or -m and a module, must be given")
    is_module = arguments.module is not None
    if not is_module and not os.path.exists(words[0]):
        streams.print_error(f"vramlab: can't open file {words[0]!r}: there is none")
        return _EXIT_USAGE
    for path in filter(None, (arguments.json, arguments.html, arguments.snapshot)):
        if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            streams.print_error(f"vramlab: can't write {path!r}: its folder does not exist")
            return _EXIT_USAGE
    model = catalogue.find(arguments.gpu)  # an unknown one is told before torch is imported
    choice = choose(
        arguments.engine,
        arguments.torch_version,
        portable_only="--on-value error" if arguments.on_value == "error" else "",
    )
    if choice.build is not None:
        return _run_natively(arguments, model, choice)

    from vramlab.report.program import Program

    program = Program(words[0], tuple(words[1:]), is_module)
    # The program may put anything in the place of stderr, and change the current folder.
    with streams.lasting(sys.stderr) as stderr:
        return _run_on_gpu(program, arguments, choice, os.getcwd(), stderr)


def _run_natively(arguments: argparse.Namespace, model: GPUModel, choice: Choice) -> int:
    """Run this command in a process on the native engine."""
    settings = arguments.alloc_conf
    return run_command(
        choice,
        arguments.words,
        model,
        arguments.count,
        streams=arguments.streams,
        variables={} if settings is None else {"PYTORCH_CUDA_ALLOC_CONF": settings},
    )


def _run_on_gpu(
    program: Program, arguments: argparse.Namespace, choice: Choice, folder: str, stderr: Any
) -> int:
    json_path, html_path, snapshot_path = (
        path and os.path.join(folder, path)
        for path in (arguments.json, arguments.html, arguments.snapshot)
    )
    with working("starting a virtual GPU"):
        from vramlab.report.collect import summarize
        from vramlab.report.history import keep_histories
        from vramlab.report.page import write_page
        from vramlab.report.steps import stop_after
        from vramlab.report.text import as_text

        make_ground = _native_ground if choice.native else _virtual_ground
        gpu, watch, describe = make_ground(arguments, choice.why)
    with watch, gpu:
        if html_path:
            keep_histories(watch.devices)
        if snapshot_path and not choice.native:
            _record()
        started = time.perf_counter()
        with stop_after(arguments.steps):
            ending = program.run()
        seconds = time.perf_counter() - started
        if snapshot_path:
            _dump(snapshot_path)
    command = shlex.join([*(["-m"] if program.is_module else []), program.name, *program.arguments])
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # whatever it is now, and whoever reads it
            stream.flush()
    with working("adding up what the program held", stderr):
        summary = summarize(describe(), watch, command, folder, ending, seconds)
    streams.write(f"\n{as_text(summary)}\n", stderr, sys.stderr, sys.__stderr__)
    if json_path:
        with open(json_path, "w", encoding="utf-8") as file:
            json.dump(summary.to_dict(), file, indent=2, ensure_ascii=False)
    if html_path:
        write_page(html_path, summary, watch.devices)
    return ending.status


_Prepared = tuple[AbstractContextManager[Any], "Watch | HistoryWatch", Callable[[], "Ground"]]
"""A GPU to attach, what watches it, and what describes it after the program."""


def _virtual_ground(arguments: argparse.Namespace, why: str) -> _Prepared:
    from vramlab.gpu import VirtualGPU
    from vramlab.report.collect import virtual_ground
    from vramlab.report.watch import Watch

    gpu = VirtualGPU(
        arguments.gpu,
        arguments.count,
        on_value=arguments.on_value or "nan",
        torch_version=arguments.torch_version,
        alloc_conf=arguments.alloc_conf,
    )
    return gpu, Watch(gpu), partial(virtual_ground, gpu, why)


def _native_ground(arguments: argparse.Namespace, why: str) -> _Prepared:
    from vramlab.native.values import KnownValues
    from vramlab.report.collect import native_ground
    from vramlab.report.history_watch import HistoryWatch

    watch, values = HistoryWatch(arguments.count, arguments.snapshot is not None), KnownValues()
    model = catalogue.find(arguments.gpu)
    return values, watch, partial(native_ground, model, watch, values, why)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def _record() -> None:
    from vramlab.gpu.torch_internals import record_memory_history

    record_memory_history("all", context="alloc", stacks="python")


def _dump(path: str) -> None:
    from vramlab.gpu.torch_internals import dump_snapshot

    dump_snapshot(path)
