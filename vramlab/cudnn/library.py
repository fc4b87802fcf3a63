"""cuDNN's own library, where this machine has it: found, started, and asked.

It comes with `vramlab native setup --cudnn`, and with PyTorch's CUDA build (the packages
nvidia-cudnn-cu12 or -cu13, and nvidia-cublas, without which it ends the process that asks).
"""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramlab import user_cache
from vramlab.cudnn import asking

OLDEST = 90800
"""From 9.8 on cuDNN answers without a GPU: "deviceless ahead-of-time compilation"."""

_GRAPH = "libcudnn_graph.so.9"
_LIBRARY_OF_PRODUCTS = "libcublasLt.so.*"


@dataclass(frozen=True)
class Installed:
    """A library that is there.

    Attributes:
        path: of libcudnn_graph.
        version: as `cudnnGetVersion` counts: 92000 is 9.20.0.
        products: a folder that has cuBLASLt for it, or what the native engine has in its place.
    """

    path: Path
    version: int
    products: Path


def installed(
    search_path: Sequence[str] | None = None, cache: Path | None = None
) -> list[Installed]:
    """List the libraries to query: of the native engine, then of the environment.

    Args:
        search_path: where packages are; by default sys.path.
        cache: the native engine's; by default the user's.
    """
    native = _of_native_engine(user_cache.folder() / "native" if cache is None else cache)
    packages = _of_packages(sys.path if search_path is None else search_path)
    return [*native, *packages]


def _of_native_engine(cache: Path) -> Iterator[Installed]:
    """Return what `vramlab native setup --cudnn` fetched: see builds.py for the cache."""
    for path in sorted((cache / "builds").glob("*/build.json")):
        try:
            named = json.loads(path.read_text(encoding="utf-8"))["cudnn"]
        except (ValueError, KeyError, TypeError):
            continue  # of a vramlab that wrote it otherwise
        if named:
            yield from _at(Path(named), [path.parent / "lib"])


def _of_packages(search_path: Sequence[str]) -> Iterator[Installed]:
    for site in map(Path, filter(None, search_path)):
        folders = [site / "nvidia" / name / "lib" for name in ("cu13", "cublas")]
        yield from _at(site / "nvidia" / "cudnn" / "lib" / _GRAPH, folders)


def _at(path: Path, folders: Sequence[Path]) -> Iterator[Installed]:
    version = _version_of(path) if path.is_file() else 0
    products = next((one for one in folders if any(one.glob(_LIBRARY_OF_PRODUCTS))), None)
    if version >= OLDEST and products is not None:
        yield Installed(path, version, products)


def _version_of(path: Path) -> int:
    """Read the version from the name of the package that a library came with; 0: none is there."""
    site = path.parents[3]
    for folder in site.glob("nvidia_cudnn_cu*-*.dist-info"):
        if found := re.search(r"-(\d+)\.(\d+)\.(\d+)", folder.name):
            major, minor, patch = map(int, found.groups())
            return 10000 * major + 100 * minor + patch
    return 0


class CudnnProcess:
    """A process that answers questions about one GPU, started with the first of them.

    cuDNN remembers of a convolution what it chose for the GPU that it was first asked about, and
    gives that for others, too: so no process is asked about two.
    """

    def __init__(self, where: Installed, gpu: str) -> None:
        """Start nothing yet.

        Args:
            where: the library.
            gpu: from `description.cudnn_json`.
        """
        self.where = where
        self._gpu = gpu
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = os.getpid()
        self.problem: str | None = None
        """Why it answers no more."""

    def ask(self, questions: Sequence[Sequence[Any]]) -> list[list[int] | str] | None:
        """Ask for the workspaces of convolutions, in bytes.

        Args:
            questions: from `Convolution.as_question`.

        Returns:
            An answer for each, see `asking`; None where the library cannot be asked: `problem`
            says why.
        """
        with self._lock:
            if self.problem is not None:
                return None
            try:
                process = self._running()
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps({"gpu": self._gpu, "questions": questions}) + "\n")
                process.stdin.flush()
                return list(json.loads(process.stdout.readline()))
            except (OSError, ValueError) as error:
                self.problem = f"{self.where.path} cannot be asked: {error}"
                self._end()
                return None

    def _running(self) -> subprocess.Popen[str]:
        if self._owner != os.getpid():  # the parent's, after a fork: it is not ours to talk to
            self._owner, self._process = os.getpid(), None
        if self._process is None:
            command = [sys.executable, "-I", "-S", asking.__file__, str(self.where.path)]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=_environment(os.environ, self.where.products),
            )
            assert self._process.stdout is not None
            version = int(self._process.stdout.readline())
            if version != self.where.version:
                raise ValueError(f"it is of version {version}, its package of {self.where.version}")
            atexit.register(self._end)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        assert process.stdin is not None
        assert process.stdout is not None
        for pipe in (process.stdin, process.stdout):
            try:
                pipe.close()
            except OSError:
                continue  # it has ended
        process.wait()


def _environment(base: Mapping[str, str], products: Path) -> dict[str, str]:
    """cuBLASLt in reach, and no GPU of the machine."""
    folders = filter(None, (str(products), base.get("LD_LIBRARY_PATH")))
    return {**base, "LD_LIBRARY_PATH": os.pathsep.join(folders), "CUDA_VISIBLE_DEVICES": ""}
