"""`vramlab run train.py`: run a training script on a virtual GPU and report where its memory goes.

$ vramlab run train.py --lr 0.1
$ vramlab run --gpu L4 --steps 3 train.py
$ vramlab run --seconds 60 train.py
$ vramlab run --gpu T4 --alloc-conf expandable_segments:True train.py
$ vramlab run --gpu A100-80GB --count 4 -m package.train
$ vramlab run -m torch.distributed.run --nproc_per_node 2 train.py
$ vramlab run --gpu all --steps 2 train.py
$ vramlab run --gpu L4 --steps 2 --largest --batch-size train.py

The script runs unmodified, and its exit status becomes that of the command. The report goes to
stderr, so the script's stdout is not changed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from vramlab import catalogue, streams
from vramlab.errors import VramlabError
from vramlab.garbage import no_garbage_collection
from vramlab.native.choice import (
    ENGINES,
    ENVIRONMENT,
    Choice,
    choose,
    default_engine,
    run_command,
)
from vramlab.native.launch import begin_again_with
from vramlab.option_values import at_least_one, cannot_run, positive
from vramlab.progress import working
from vramlab.report.running.ranks import launched_on_this_machine, launched_rank
from vramlab.torch_versions import KNOWN

if TYPE_CHECKING:
    from vramlab.catalogue import GPUModel
    from vramlab.native.values import KnownValues
    from vramlab.report.collect import RunningEngine
    from vramlab.report.running.program import Program

_EXIT_FITS = 0
_EXIT_DOES_NOT_FIT = 1
_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `run` to the command line."""
    parser = subparsers.add_parser(
        "run",
        help="run a training script on a virtual GPU and report where its memory goes",
        description="Run an unmodified training script on a virtual GPU. Then report whether it "
        "fits, what fills the memory at the peak, and which lines allocated it. The report goes "
        "to stderr. The exit status is that of the script.",
        usage="%(prog)s [options] (script.py | -m module) [arguments of the program ...]",
        allow_abbrev=False,
        takes_option="--largest",
        examples=(
            "vramlab run --gpu T4 train.py --lr 0.1",
            "vramlab run --gpu A100-80GB --steps 3 --html report.html train.py",
            "vramlab run --gpu all --steps 2 train.py",
            "vramlab run --gpu L4 --steps 2 --largest --batch-size train.py",
            "vramlab run -m torch.distributed.run --nproc_per_node 2 train.py",
        ),
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        default="A100-40GB",
        help="GPU to simulate, as listed by `vramlab gpus` (default: %(default)s). Also a MIG "
        "slice such as H100-1g.10gb, or your own numbers such as 'H100,memory=60GiB'. With several "
        "names separated by commas, or `all` for the common GPUs, report which ones the program "
        "fits on",
    )
    parser.add_argument(
        "--largest",
        metavar="OPTION",
        help="find the largest value that fits for an option of the program, such as --batch-size",
    )
    parser.add_argument(
        "--multiple-of",
        type=at_least_one,
        metavar="N",
        help="with --largest, try only multiples of N (default: 1)",
    )
    parser.add_argument(
        "--count",
        type=at_least_one,
        metavar="N",
        help="number of GPUs (default: 1, or under torchrun one per local rank)",
    )
    parser.add_argument(
        "--on-value",
        choices=("nan", "zero", "error"),
        help="what loss.item() and other reads of values on the GPU return, which a virtual GPU "
        "does not compute: nan (0 for integers and arrays), zero, or an error; the report lists "
        "every line that read a value (default: nan)",
    )
    parser.add_argument(
        "--alloc-conf",
        metavar="SETTINGS",
        help="settings of PyTorch's caching allocator, such as expandable_segments:True (default: "
        "$PYTORCH_CUDA_ALLOC_CONF, or $PYTORCH_ALLOC_CONF)",
    )
    parser.add_argument(
        "--try-allocator",
        action="store_true",
        help="after the run, replay its allocations under other allocator settings and show how "
        "much memory each would reserve (portable engine only)",
    )
    parser.add_argument(
        "--torch-version",
        metavar="VERSION",
        help=f"PyTorch version to simulate ({KNOWN}), or to run on the native engine (default: "
        "the installed version). On the portable engine, autograd is always the installed one",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default=default_engine(),
        help="portable (the virtual GPU), native (PyTorch's CUDA build, see `vramlab native`), or "
        f"auto (native if that PyTorch version is set up) (default: ${ENVIRONMENT}, or auto)",
    )
    parser.add_argument(
        "--streams",
        choices=("early", "late"),
        default="early",
        help="on the native engine, when CUDA events complete: early, as soon as they are "
        "recorded; late, only when the program waits for them (default: %(default)s)",
    )
    parser.add_argument(
        "--steps",
        type=at_least_one,
        metavar="N",
        help="stop the program after N training steps, with exit status 0; without an optimizer, "
        "backward passes that create new gradients count as steps",
    )
    parser.add_argument(
        "--seconds",
        type=positive,
        metavar="S",
        help="stop the program after S seconds, with exit status 0",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write the report as JSON, with sizes in bytes"
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write the report as a web page with an interactive timeline of all allocations",
    )
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        help="write a memory snapshot of the run, for pytorch.org/memory_viz",
    )
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, help="run a module, like `python -m`"
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the program, print the report, and return the exit status."""
    words = arguments.program if arguments.module is None else arguments.module
    if not words:
        arguments.parser.error("missing a script (or -m and a module)")
    is_module = arguments.module is not None
    if not is_module and (problem := cannot_run(words[0])):
        streams.print_error(f"vramlab: {problem}")
        return _EXIT_USAGE
    for path in filter(None, (arguments.json, arguments.html, arguments.snapshot)):
        if problem := streams.cannot_write(path):
            streams.print_error(problem)
            return _EXIT_USAGE
    if arguments.multiple_of is not None and not arguments.largest:
        arguments.parser.error("--multiple-of needs --largest: add --largest OPTION")
    models = _models(arguments.gpu)
    if arguments.largest or len(models) > 1:
        return _run_often(arguments, words, models)
    (model,) = models  # an unknown name fails before the slow import of torch
    choice = choose(
        arguments.engine,
        arguments.torch_version,
        portable_only=_portable_only(arguments),
    )
    if choice.build is not None:
        return _run_natively(arguments, model, choice)
    if choice.native:
        begin_again_with(model, _count(arguments), arguments.streams)

    with no_garbage_collection():
        from vramlab.report.running.program import Program

    program = Program(words[0], tuple(words[1:]), is_module)
    # The program may replace sys.stderr and change the current folder.
    with streams.lasting(sys.stderr) as stderr:
        return _run_on_gpu(program, arguments, choice, os.getcwd(), stderr)


def _models(text: str) -> list[GPUModel]:
    """Return the requested GPUs.

    Raises:
        UnknownGPUError: A GPU is not in the catalogue.
        GPUFigureError: A number for a GPU is unknown or out of range.
        VramlabError: A name is empty.
    """
    names = catalogue.split(text)
    if [name.lower() for name in names] == ["all"]:
        return list(catalogue.common())
    if "" in names:
        raise VramlabError(
            f"invalid --gpu {text!r}: a name is empty; `vramlab gpus` lists the names"
        )
    return list({model.name: model for model in map(catalogue.find, names)}.values())


def _run_often(arguments: argparse.Namespace, words: list[str], models: list[GPUModel]) -> int:
    """Try several GPUs, or values of an option; return 0 if the program fits on one, else 1.

    Raises:
        VramlabError: Options that exclude each other, or a run that failed.
    """
    from vramlab.sizing import text
    from vramlab.sizing.gpus import smallest_that_fits, try_gpus
    from vramlab.sizing.largest import find_largest
    from vramlab.sizing.runs import run_once
    from vramlab.sizing.server import RunServer

    for option in filter(partial(getattr, arguments), ("html", "snapshot", "try_allocator")):
        option = option.replace("_", "-")
        raise VramlabError(
            f"--{option} cannot be combined with --largest or several GPUs: leave it out"
        )
    if arguments.largest and len(models) > 1:
        raise VramlabError("--largest works with one GPU only: pass a single name to --gpu")
    words = words if arguments.module is None else ["-m", *words]
    options = _options(arguments, without=("gpu",))
    command, is_whole = shlex.join(words), True
    with ExitStack() as stack:
        server = None
        if hasattr(os, "fork") and not _runs_natively(arguments):
            server = stack.enter_context(RunServer()).run
        run_program = partial(run_once, options, run_command=server)
        step = stack.enter_context(working("running the program"))
        tell = step.tell if streams.is_terminal(sys.stderr) else _log
        if arguments.largest:
            name, multiple = arguments.largest, arguments.multiple_of or 1
            search = find_largest(
                run_program, models[0], words, name, multiple_of=multiple, tell=tell
            )
            is_whole = not search.interrupted
            fits, data = search.largest is not None, text.largest_as_dict(command, search)
            table = text.largest_table(command, search)
        else:
            tried = try_gpus(run_program, words, models, tell=tell)
            fits, data = smallest_that_fits(tried) is not None, text.gpus_as_dict(command, tried)
            is_whole = len(tried) == len(models)
            table = text.gpus_table(command, tried, len(models) - len(tried))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=2, ensure_ascii=False)
    print(table)
    if not is_whole:
        return _EXIT_INTERRUPTED
    return _EXIT_FITS if fits else _EXIT_DOES_NOT_FIT


def _runs_natively(arguments: argparse.Namespace) -> bool:
    """Check whether this command runs programs on the native engine."""
    portable_only = _portable_only(arguments)
    return choose(arguments.engine, arguments.torch_version, portable_only=portable_only).native


def _portable_only(arguments: argparse.Namespace) -> str:
    """Return an option of this command that only the portable engine has; '' without one."""
    if arguments.try_allocator:
        return "--try-allocator"
    return f"--on-value {arguments.on_value}" if arguments.on_value else ""


def _log(detail: str) -> None:
    """Print a line of progress, for logs."""
    streams.print_error(f"vramlab: {detail}")


def _run_natively(arguments: argparse.Namespace, model: GPUModel, choice: Choice) -> int:
    """Run this command again in a process on the native engine."""
    settings = arguments.alloc_conf
    return run_command(
        choice,
        arguments.words,
        model,
        _count(arguments),
        streams=arguments.streams,
        variables={} if settings is None else {"PYTORCH_CUDA_ALLOC_CONF": settings},
    )


def _run_on_gpu(
    program: Program, arguments: argparse.Namespace, choice: Choice, folder: str, stderr: Any
) -> int:
    with working("starting a virtual GPU"), no_garbage_collection():
        from vramlab.report.reporter import Files, Reporter
        from vramlab.report.running.children import Children
        from vramlab.report.running.crash_notice import CrashNotice
        from vramlab.report.running.overseer import Overseer
        from vramlab.report.running.processes import NativeGPUs, Processes

        prepare = _native_engine if choice.native else _virtual_engine
        engine = prepare(arguments, choice.why)
    names = ("json", "html", "snapshot")
    paths = {
        name: os.path.join(folder, path) for name in names if (path := getattr(arguments, name))
    }
    written = [word for name, path in paths.items() for word in (f"--{name}", path)]
    children = Children([*_options(arguments), *written])
    files = Files(**{name: _of_rank(path) for name, path in paths.items()})
    native = NativeGPUs(arguments.gpu, _count(arguments)) if choice.native else None
    processes = Processes(program.command, arguments.steps, files.json, native)
    reporter = Reporter(
        engine,
        children,
        processes,
        program.command,
        folder,
        stderr,
        files,
        options=_options(arguments, without=("gpu",)),
        try_allocator=arguments.try_allocator,
    )
    notice = CrashNotice(stderr, folder)
    overseer = Overseer(reporter.report, reporter.progress, stderr, arguments.seconds, notice)
    with notice, overseer, engine.watch, engine.attached, children, processes:
        reporter.begin()
        return overseer.run(program).status


def _virtual_engine(arguments: argparse.Namespace, why: str) -> RunningEngine:
    from vramlab.gpu import VirtualGPU
    from vramlab.report.collect import RunningEngine, virtual_devices, virtual_ground
    from vramlab.report.evidence.asked_facts import NotingModel
    from vramlab.report.evidence.watch import Watch

    model = NotingModel.of(catalogue.find(arguments.gpu))
    try:
        gpu = VirtualGPU(
            model,
            _count(arguments),
            on_value=arguments.on_value or "nan",
            torch_version=arguments.torch_version,
            alloc_conf=arguments.alloc_conf,
        )
    except VramlabError:
        raise
    except ValueError as error:  # too many GPUs
        raise VramlabError(f"invalid --count: {error}") from None
    watch = Watch(gpu, arguments.steps)
    model.forget()
    return RunningEngine(
        gpu.name,
        gpu,
        watch,
        partial(virtual_devices, gpu),
        partial(virtual_ground, gpu, why),
    )


def _native_engine(arguments: argparse.Namespace, why: str) -> RunningEngine:
    from vramlab.native.values import KnownValues
    from vramlab.report.collect import RunningEngine, native_devices, native_ground
    from vramlab.report.evidence.history_watch import HistoryWatch

    keeps_history = arguments.snapshot is not None
    watch = HistoryWatch(_count(arguments), keeps_history, arguments.steps)
    values, model = KnownValues(), catalogue.find(arguments.gpu)
    return RunningEngine(
        model.name,
        _one_rank_with(values),
        watch,
        partial(native_devices, model, watch),
        partial(native_ground, model, watch, values, why),
    )


@contextmanager
def _one_rank_with(values: KnownValues) -> Iterator[None]:
    """Keep known values, and simulate a single rank without the others."""
    from vramlab.gpu.stand_ins.ranks.rank_alone import waiting_for_nobody

    with waiting_for_nobody(), values:
        yield


def _count(arguments: argparse.Namespace) -> int:
    return arguments.count or launched_on_this_machine()


def _options(arguments: argparse.Namespace, without: Sequence[str] = ()) -> list[str]:
    """Return the options, other than the defaults, for a run of another process."""
    names = (
        *("gpu", "count", "on_value", "alloc_conf", "torch_version", "engine", "streams"),
        *("steps", "seconds"),
    )
    values = {name: getattr(arguments, name) for name in names if name not in without}
    pairs = [
        (f"--{name.replace('_', '-')}", str(value))
        for name, value in values.items()
        if value != arguments.parser.get_default(name)
    ]
    return [word for pair in pairs for word in pair]


def _of_rank(path: str) -> str:
    """Return the file name for this rank: `report.json`, `report.rank1.json`."""
    stem, ending = os.path.splitext(path)
    return f"{stem}.rank{launched_rank()}{ending}" if launched_rank() else path
