"""`vramlab native`: run programs with PyTorch's real CUDA build, without a GPU.

$ vramlab native setup --cudnn
$ vramlab native list
$ vramlab native run --gpu H200 train.py --lr 0.1
$ vramlab native kernel --gpu T4
$ vramlab native check bitsandbytes
$ vramlab native remove
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vramlab import catalogue, streams
from vramlab.errors import VramlabError
from vramlab.native.kernel import DISPLAY_NAME as KERNEL_NAME
from vramlab.native.kernel import install
from vramlab.option_values import at_least_one, cannot_run
from vramlab.units import GIB

_EXIT_OK = 0
_EXIT_MISSING = 1
_MOST_FUNCTIONS = 10


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `native` to the command line."""
    parser = subparsers.add_parser(
        "native",
        help="set up and use the native engine: PyTorch's real CUDA build, no GPU (Linux)",
        description="Set up and use the native engine. It runs PyTorch's released CUDA build on "
        "stub CUDA libraries, which count memory and compute nothing. Linux x86-64 only.",
        examples=(
            "vramlab native setup --cudnn",
            "vramlab native run --gpu H200 train.py --lr 0.1",
        ),
    )
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_setup(verbs)
    listing = verbs.add_parser(
        "list",
        help="list the PyTorch builds that are set up",
        description="List the PyTorch builds that are set up, with their sizes and folders.",
        examples=("vramlab native list",),
    )
    listing.set_defaults(run=_list)
    removing = verbs.add_parser(
        "remove",
        help="remove PyTorch builds and downloads",
        description="Remove PyTorch builds and everything that was downloaded for them.",
        examples=("vramlab native remove --torch 2.13.0",),
    )
    _add_version(removing, "PyTorch version to remove (default: all versions and all downloads)")
    removing.set_defaults(run=_remove)
    _add_run(verbs)
    _add_kernel(verbs)
    checking = verbs.add_parser(
        "check",
        help="check whether a package's CUDA libraries work on the native engine",
        description="Read the shared libraries of a package such as bitsandbytes, and list the "
        "NVIDIA libraries and functions it needs that the stub libraries lack. Nothing is loaded "
        "or run. The exit status is 1 if something is missing.",
        examples=("vramlab native check bitsandbytes",),
    )
    _add_version(checking, "PyTorch version to check with (default: newest that is set up)")
    checking.add_argument(
        "packages",
        nargs="+",
        metavar="PACKAGE",
        help="installed package, or path of a shared library",
    )
    checking.set_defaults(run=_check)


def _add_setup(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "setup",
        help="download a PyTorch CUDA build and compile the stub libraries",
        description="Download PyTorch's CUDA wheel (0.5 GiB; 1.1 GiB on disk) and compile stub "
        "CUDA libraries (about 10 s). Everything goes to your cache folder; your environment does "
        "not change.",
        examples=("vramlab native setup --cudnn --triton",),
    )
    _add_version(parser, "PyTorch version to set up (default: the installed version)")
    parser.add_argument(
        "--site",
        type=Path,
        metavar="FOLDER",
        help="use the PyTorch CUDA build unpacked in FOLDER instead of downloading one",
    )
    parser.add_argument(
        "--cudnn",
        action="store_true",
        help="also download cuDNN, which convolutions need (0.4 GiB; 0.7 GiB for CUDA 12)",
    )
    parser.add_argument(
        "--triton",
        action="store_true",
        help="also download Triton, which torch.compile needs (0.2 GiB)",
    )
    parser.set_defaults(run=_setup)


def _add_run(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "run",
        help="run a program on the native engine, without a report",
        description="Run a program on the native engine, without a memory report (for the report, "
        "use `vramlab run --engine native`). CUDA calls that cannot work without a GPU are listed "
        "on stderr. The exit status is that of the program.",
        usage="%(prog)s [options] (script.py | -m module) [arguments of the program ...]",
        allow_abbrev=False,
        examples=("vramlab native run --gpu H200 train.py --lr 0.1",),
    )
    _add_gpu(parser)
    parser.add_argument(
        "--streams",
        choices=("early", "late"),
        default="early",
        help="when CUDA events complete: early, as soon as they are recorded; late, only when the "
        "program waits for them (default: %(default)s)",
    )
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, help="run a module, like `python -m`"
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(run=_run, parser=parser)


def _add_kernel(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "kernel",
        help="install a Jupyter kernel that runs notebooks on the native engine",
        description=f"Install the Jupyter kernel {KERNEL_NAME!r} for the current user, replacing "
        "an earlier one. Notebooks run in it unchanged.",
        examples=("vramlab native kernel --gpu T4",),
    )
    _add_gpu(parser)
    parser.set_defaults(run=_kernel)


def _add_gpu(parser: argparse.ArgumentParser) -> None:
    _add_version(parser, "PyTorch version to run (default: newest that is set up)")
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        default="A100-40GB",
        help="GPU to simulate, as listed by `vramlab gpus` (default: %(default)s)",
    )
    parser.add_argument(
        "--count",
        type=at_least_one,
        default=1,
        metavar="N",
        help="number of GPUs (default: %(default)s)",
    )


def _add_version(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--torch", metavar="VERSION", help=text)


def _setup(arguments: argparse.Namespace) -> int:
    from vramlab import native

    with _undone_when_ended():
        build = native.set_up(
            arguments.torch,
            site=arguments.site,
            cudnn=arguments.cudnn,
            triton=arguments.triton,
            report=streams.print_error,
        )
    print(f"PyTorch {build.torch_version} is set up: {build.size_bytes() / GIB:.2f} GiB")
    print(f"  in {build.folder}, and {build.site}")
    if build.cudnn is None:
        print("  without cuDNN: convolutions fail (add it with --cudnn)")
    if build.triton is None:
        print("  without Triton: torch.compile fails (add it with --triton)")
    print(f"  run a program: vramlab native run --torch {build.release} script.py")
    print(f"  remove it: vramlab native remove --torch {build.release}")
    return _EXIT_OK


@contextmanager
def _undone_when_ended() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack like Ctrl+C, so partial downloads are removed."""
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _list(arguments: argparse.Namespace) -> int:
    from vramlab import native

    found = native.installed()
    for build in found:
        cudnn = "with cuDNN" if build.cudnn else "without cuDNN"
        triton = "with Triton" if build.triton else "without Triton"
        size = f"{build.size_bytes() / GIB:.2f} GiB"
        print(f"{build.torch_version}  {build.python}  {cudnn}  {triton}  {size}  {build.folder}")
    if not found:
        print("No PyTorch build is set up. To set one up: vramlab native setup")
    for folder in native.unused_sites():
        print(f"downloaded but not set up (delete with `vramlab native remove`): {folder}")
    return _EXIT_OK


def _remove(arguments: argparse.Namespace) -> int:
    from vramlab import native
    from vramlab.native import builds

    chosen: Sequence[native.Build] = native.installed()
    if arguments.torch is not None:
        chosen = [builds.find(arguments.torch)]
    for build in chosen:
        native.remove(build)
        print(f"removed PyTorch {build.torch_version}")
    if arguments.torch is None:
        native.remove_unused_sites()
    return _EXIT_OK


def _run(arguments: argparse.Namespace) -> int:
    from vramlab import native
    from vramlab.native.report import as_lines

    words = arguments.program if arguments.module is None else arguments.module
    if not words:
        arguments.parser.error("missing a script (or -m and a module)")
    if arguments.module is not None:
        words = ["-m", *words]
    elif problem := cannot_run(words[0]):
        raise VramlabError(problem)
    gpu = catalogue.find(arguments.gpu)
    build = native.find(arguments.torch)
    status, calls = native.run(build, words, gpu, arguments.count, streams=arguments.streams)
    for line in as_lines(calls):
        streams.print_error(line)
    return status


def _check(arguments: argparse.Namespace) -> int:
    from vramlab import native
    from vramlab.native.foreign import missing_for

    build = native.find(arguments.torch)
    status = _EXIT_OK
    for package in arguments.packages:
        missing = missing_for(package, build)
        if not missing:
            print(f"{package}: nothing missing with PyTorch {build.torch_version}")
        for gap in missing:
            status = _EXIT_MISSING
            lacks = ", ".join((*gap.files, *gap.functions[:_MOST_FUNCTIONS]))
            more = len(gap.functions) - _MOST_FUNCTIONS
            print(f"{package}: {gap.library.name} needs {lacks}", end="")
            print(f", and {more} more functions" if more > 0 else "")
    return status


def _kernel(arguments: argparse.Namespace) -> int:
    from vramlab import native

    gpu = catalogue.find(arguments.gpu)
    build = native.find(arguments.torch)
    folder = install(build, gpu, arguments.count)
    print(f"{KERNEL_NAME}: {arguments.count} x {gpu.name}, PyTorch {build.torch_version}")
    print(f"  installed in {folder}")
    print(f"  remove it: jupyter kernelspec remove {folder.name}")
    return _EXIT_OK
