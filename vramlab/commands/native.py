"""`vramlab native`: run programs with PyTorch's own CUDA code, on a GPU that is not there.

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
from vramlab.native.kernel import DISPLAY_NAME as KERNEL_NAME
from vramlab.native.kernel import install
from vramlab.option_values import at_least_one
from vramlab.units import GIB

_EXIT_OK = 0
_EXIT_MISSING = 1
_MOST_FUNCTIONS = 10


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `native` to the command line."""
    parser = subparsers.add_parser(
        "native",
        help="run programs with PyTorch's own CUDA code, on a GPU that is not there (Linux)",
        description="Run programs with PyTorch's released CUDA build on libraries that describe a "
        "GPU, count its memory and compute nothing. Linux x86-64 only.",
    )
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_setup(verbs)
    verbs.add_parser("list", help="show what is set up").set_defaults(run=_list)
    removing = verbs.add_parser("remove", help="remove what was set up")
    _add_version(removing, "which PyTorch; without it, every one, and all that was fetched")
    removing.set_defaults(run=_remove)
    _add_run(verbs)
    _add_kernel(verbs)
    checking = verbs.add_parser(
        "check",
        help="say what packages with CUDA libraries of their own miss on the native engine",
        description="Read the shared libraries of packages such as bitsandbytes, and name what "
        "they need of NVIDIA's libraries that the substitutes lack. Nothing is loaded. Ends with "
        "status 1 if something is missing.",
    )
    _add_version(checking, "which PyTorch of those that are set up (default: the newest)")
    checking.add_argument("packages", nargs="+", metavar="PACKAGE", help="or the path of a library")
    checking.set_defaults(run=_check)


def _add_setup(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "setup",
        help="fetch a PyTorch CUDA build, and compile what it needs",
        description="Fetch PyTorch's CUDA wheel alone (0.5 GiB to download, 1.1 GiB on the disk) "
        "and compile substitutes for CUDA's libraries (10 s), into the user's cache.",
    )
    _add_version(parser, "which PyTorch (default: the version that is installed)")
    parser.add_argument(
        "--site",
        type=Path,
        metavar="FOLDER",
        help="take the PyTorch CUDA build that was unpacked into FOLDER, and fetch none",
    )
    parser.add_argument(
        "--cudnn",
        action="store_true",
        help="fetch cuDNN's library as well, which convolutions need (0.4 GiB to download; 0.7 for "
        "CUDA 12)",
    )
    parser.add_argument(
        "--triton",
        action="store_true",
        help="fetch Triton as well, which torch.compile needs (0.2 GiB to download)",
    )
    parser.set_defaults(run=_setup)


def _add_run(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "run",
        help="run a program",
        description="Run a program on the native engine. Its exit status is this command's; what "
        "it asked for that has no meaning here is told on stderr.",
        usage="%(prog)s [options] (script.py | -m module) [arguments of the program ...]",
        allow_abbrev=False,
    )
    _add_gpu(parser)
    parser.add_argument(
        "--streams",
        choices=("early", "late"),
        default="early",
        help="whether events complete at once, or when the program waits (default: %(default)s)",
    )
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, help="run a module, as `python -m` does"
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(run=_run, parser=parser)


def _add_kernel(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "kernel",
        help="install a Jupyter kernel that runs notebooks on the native engine",
        description=f"Install the Jupyter kernel {KERNEL_NAME!r} for this user: notebooks run "
        "unchanged in it. Where there is one, it is replaced.",
    )
    _add_gpu(parser)
    parser.set_defaults(run=_kernel)


def _add_gpu(parser: argparse.ArgumentParser) -> None:
    _add_version(parser, "which PyTorch of those that are set up (default: the newest)")
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        default="A100-40GB",
        help="the GPU; see `vramlab gpus` (default: %(default)s)",
    )
    parser.add_argument(
        "--count", type=at_least_one, default=1, help="how many of them (default: 1)"
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
        print("  without cuDNN: convolutions are refused (--cudnn fetches it)")
    if build.triton is None:
        print("  without Triton: torch.compile has no compiler (--triton fetches it)")
    print(f"  vramlab native run --torch {build.release} script.py")
    print(f"  vramlab native remove --torch {build.release}")
    return _EXIT_OK


@contextmanager
def _undone_when_ended() -> Iterator[None]:
    """Let a signal that ends this process do it as Ctrl+C does: what is half made is removed."""
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
        print("Nothing is set up: vramlab native setup")
    for folder in native.unused_sites():
        print(f"fetched, and not set up (vramlab native remove removes it): {folder}")
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
        arguments.parser.error("a script, or -m and a module, must be given")
    if arguments.module is not None:
        words = ["-m", *words]
    elif not os.path.exists(words[0]):
        arguments.parser.error(f"can't open file {words[0]!r}: there is none")
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
            print(f"{package}: misses nothing with PyTorch {build.torch_version}")
        for each in missing:
            status = _EXIT_MISSING
            lacks = ", ".join((*each.files, *each.functions[:_MOST_FUNCTIONS]))
            more = len(each.functions) - _MOST_FUNCTIONS
            print(f"{package}: {each.library.name} misses {lacks}", end="")
            print(f", and {more} functions more" if more > 0 else "")
    return status


def _kernel(arguments: argparse.Namespace) -> int:
    from vramlab import native

    gpu = catalogue.find(arguments.gpu)
    build = native.find(arguments.torch)
    folder = install(build, gpu, arguments.count)
    print(f"{KERNEL_NAME}: {arguments.count} x {gpu.name}, PyTorch {build.torch_version}")
    print(f"  in {folder}")
    print(f"  jupyter kernelspec remove {folder.name}")
    return _EXIT_OK
