"""Start programs on the native engine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.cudnn.description import cudnn_json
from vramlab.native import foreign, kernel_code, report
from vramlab.native.builds import Build, preloads_beside
from vramlab.native.errors import NativeEngineError
from vramlab.native.gpu import Streams, describe, described_count
from vramlab.native.report import CORE, SubstituteCall

_TRIAL = """
import os, sys
try:
    import torch
except ModuleNotFoundError as error:
    if (error.name or "torch").partition(".")[0] == "torch":
        raise
    sys.exit(f"MISSING {error.name}")
place = torch.zeros(3, device="cuda")
mapped = {line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if ".so" in line}
substituted = {name.partition(".so")[0] for name in os.listdir(sys.argv[1])} - {"libnvrtc"}
others = [path for path in mapped if os.path.basename(path).partition(".so")[0] in substituted
          and os.path.realpath(os.path.dirname(path)) != os.path.realpath(sys.argv[1])]
assert not others, f"these were loaded instead of their substitutes: {', '.join(sorted(others))}"
assert torch.cuda.memory_allocated() == 512, torch.cuda.memory_allocated()
assert torch.tensor([1.5, 2.5]).cuda().cpu().tolist() == [1.5, 2.5]
"""
_TRIAL_TIMEOUT_S = 300
_MISSING = "MISSING "
_LAST_LINES = 12


def environment(
    build: Build,
    gpu: GPUModel,
    count: int = 1,
    *,
    streams: Streams = "early",
    libraries: Path | None = None,
    report_file: Path | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Make the environment variables with which a process finds the GPU.

    PyTorch and Triton come from the build, every other package from the calling environment. The
    real GPUs of the machine are never asked for: every library that would is substituted. What
    torch.compile writes stays apart: choices that it made by times of no GPU are for no real one.
    Libraries of NVIDIA's in LD_PRELOAD are left out: they would come before their substitutes.

    Args:
        build: from `setup.find`.
        gpu: from the catalogue.
        count: how many of it.
        streams: when events complete.
        libraries: the substitutes' folder, if it is another than the build's.
        report_file: from `report.make_file`.
        base: what to start from; None: this process's own.

    Raises:
        NativeEngineError: too few or too many GPUs.
    """
    values = dict(os.environ if base is None else base)
    for folder in filter(None, (libraries or build.libraries, build.nvrtc)):
        values["LD_LIBRARY_PATH"] = _before(folder, values.get("LD_LIBRARY_PATH"))
    preloads = preloads_beside(libraries or build.libraries)
    for folder in filter(None, (preloads, build.triton, build.site)):
        values["PYTHONPATH"] = _before(folder, values.get("PYTHONPATH"))
    if preloaded := values.pop("LD_PRELOAD", None):
        rest = [word for word in re.split("[ :]+", preloaded) if not foreign.has_cuda(Path(word))]
        values["LD_PRELOAD"] = ":".join(rest)
    values.setdefault("TORCHINDUCTOR_CACHE_DIR", str(build.folder / "compiled"))
    values["VRAMLAB_NATIVE_GPU"] = describe(gpu, count, streams)
    if build.cudnn is not None:
        values["VRAMLAB_NATIVE_CUDNN"] = str(build.cudnn)
        values["VRAMLAB_NATIVE_CUDNN_GPU"] = cudnn_json(gpu, build.cuda_version)
    if table := kernel_code.table_file(build.folder, build.site, gpu.compute_capability):
        values["VRAMLAB_NATIVE_CODE"] = str(table)
    if report_file is not None:
        values[report.ENVIRONMENT] = str(report_file)
    return values


def begin_again_with(gpu: GPUModel, count: int, streams: Streams) -> None:
    """Begin this process again where it is to have more GPUs than it was started with.

    A rank that torchrun has started finds the GPUs of the process that called torchrun, and needs
    one for each rank of this machine. Only before torch is imported: it asks once how many there
    are.

    Args:
        gpu: from the catalogue.
        count: how many of it there are to be.
        streams: when events complete.
    """
    if described_count(os.environ["VRAMLAB_NATIVE_GPU"]) < count:
        os.environ["VRAMLAB_NATIVE_GPU"] = describe(gpu, count, streams)
        os.execv(sys.executable, sys.orig_argv)


def _before(folder: Path, rest: str | None) -> str:
    return f"{folder}{os.pathsep}{rest}" if rest else str(folder)


def run(
    build: Build,
    words: Sequence[str],
    gpu: GPUModel,
    count: int = 1,
    *,
    streams: Streams = "early",
    base: Mapping[str, str] | None = None,
) -> tuple[int, list[SubstituteCall]]:
    """Run Python with some arguments on the native engine, and wait for it.

    Args:
        build: from `setup.find`.
        words: what follows `python`: a script and its arguments, or `-m` and a module.
        gpu: from the catalogue.
        count: how many of it.
        streams: when events complete.
        base: the environment to start from; None: this process's own.

    Returns:
        The exit status as shells count it (128 and more: a signal), and what was called that has
        no meaning here.

    Raises:
        NativeEngineError: files of the build are gone, there is no room for temporary files, or too
            few or too many GPUs.
    """
    again = f"`vramlab native setup --torch {build.release}`"
    if not (build.site / "torch").is_dir():
        raise NativeEngineError(f"PyTorch is missing in {build.site}. Set it up again: {again}")
    if not (build.libraries / CORE).is_file():
        raise NativeEngineError(
            f"the stub libraries are missing in {build.libraries}. Run `vramlab native remove "
            f"--torch {build.release}`, then {again}."
        )
    with _report_file() as report_file:
        values = environment(build, gpu, count, streams=streams, report_file=report_file, base=base)
        process = subprocess.Popen([sys.executable, *words], env=values)
        with _passing_on_to(process):
            status = _wait(process)
        return (128 - status if status < 0 else status), report.read_file(report_file)


@contextmanager
def _report_file() -> Iterator[Path]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="vramlab-native-")
        report_file = Path(folder.name, "calls")
        report.make_file(report_file)
    except OSError as error:
        raise NativeEngineError(f"failed to create a temporary file: {error}") from error
    with folder:
        yield report_file


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process; Ctrl+C goes to it as well, and it says when it ends."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


@contextmanager
def _passing_on_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass on to a program what shall end it, such as a batch system's SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    ending = (signal.SIGTERM, signal.SIGHUP)
    before = {
        number: signal.signal(number, lambda number, frame: process.send_signal(number))
        for number in ending
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def try_out(build: Build, libraries: Path) -> None:
    """Run a small program on a fresh build.

    Raises:
        NativeEngineError: it fails; the message has the end of what it said.
    """
    values = environment(build, catalogue.find("T4"), libraries=libraries)
    values["PYTHONPATH"] = f"{build.site}{os.pathsep}{preloads_beside(libraries)}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRIAL, str(libraries)],
            env=values,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TRIAL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise NativeEngineError(f"PyTorch {build.torch_version} did not start: {error}") from error
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        if last.startswith(_MISSING):
            raise NativeEngineError(
                f"PyTorch {build.torch_version} needs the package {last.removeprefix(_MISSING)}, "
                "which is not installed in this environment: install it here."
            )
        said = "\n".join(done.stderr.strip().splitlines()[-_LAST_LINES:])
        raise NativeEngineError(
            f"PyTorch {build.torch_version} fails with the stub libraries:\n{said}"
        )
