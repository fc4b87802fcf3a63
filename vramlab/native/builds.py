"""What is set up: PyTorch builds with their substitutes, in the user's cache.

It lies there so:

    ~/.cache/vramlab/native/
        sites/torch-2.11.0-cp311/        PyTorch, unpacked
        sites/nvidia-cudnn-cu13-9.19.0.56/   cuDNN's library, where it was asked for
        sites/nvidia-cuda-nvrtc-13.0/    the compiler that cuDNN calls
        sites/triton-3.6.0-cp311/        Triton, where it was asked for
        builds/torch-2.11.0+cu130-cp311-0c224d67/
            lib/                         the substitutes
            preloads/                    the same, where PyTorch looks for what pip installed
            build.json                   what they are for
            compiled/                    what torch.compile has written
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vramlab import torch_versions
from vramlab.native import cache
from vramlab.native.errors import NativeEngineError


@dataclass(frozen=True)
class Build:
    """A PyTorch that can be run."""

    folder: Path
    """Where its substitutes are."""
    torch_version: str
    """Such as `2.11.0+cu130`."""
    cuda_version: int
    """1000 * major + 10 * minor."""
    python: str
    """The Python that it is for, such as `cp311`."""
    site: Path
    """The folder that has `torch`."""
    sources: str
    """What they were made from, see `substitutes.sources_fingerprint`."""
    cudnn: Path | None
    """cuDNN's own library of graphs, to be asked about convolutions; None: it is not here."""
    nvrtc: Path | None = None
    """The folder that has NVIDIA's compiler, with which cuDNN plans attention; None: not here."""
    triton: Path | None = None
    """The folder that has `triton`, for torch.compile; None: it is not here."""

    @property
    def libraries(self) -> Path:
        """The folder for LD_LIBRARY_PATH."""
        return self.folder / "lib"

    @property
    def preloads(self) -> Path:
        """The folder for PYTHONPATH in which PyTorch finds the substitutes before NVIDIA's own."""
        return preloads_beside(self.libraries)

    @property
    def release(self) -> str:
        """The version without what it was built for: `2.11.0`."""
        return self.torch_version.partition("+")[0]

    def size_bytes(self) -> int:
        """Sum up what it takes on the disk, with its PyTorch and libraries if they are cached."""
        folders = [self.folder, *self._own_sites()]
        files = (path for folder in folders for path in folder.rglob("*"))
        return sum(path.lstat().st_size for path in files if not path.is_dir())

    def _own_sites(self) -> list[Path]:
        inside = cache.folder() / "sites"
        used = (self.site, self.cudnn, self.nvrtc, self.triton)
        mine = [path for path in used if path is not None and path.is_relative_to(inside)]
        return [inside / path.relative_to(inside).parts[0] for path in mine]


def preloads_beside(libraries: Path) -> Path:
    """Name the folder of links to libraries for PyTorch's `_preload_cuda_deps`."""
    return libraries.parent / "preloads"


def python_tag() -> str:
    """Name the running Python as wheels do: `cp311`, or `cp313t` without a global lock."""
    return f"cp{sys.version_info.major}{sys.version_info.minor}{getattr(sys, 'abiflags', '')}"


def installed() -> list[Build]:
    """List every build that is set up, older PyTorch versions first, then older builds."""
    found = []
    for path in (cache.folder() / "builds").glob("*/build.json"):
        try:
            found.append(_read(path))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # of a vramlab that wrote it otherwise: set up again
    return sorted(found, key=lambda build: (_numbers(build.release), build.python, _made(build)))


def _made(build: Build) -> float:
    return (build.folder / "build.json").stat().st_mtime


def find(version: str | None = None) -> Build:
    """Find what is set up for the running Python.

    Args:
        version: such as `2.11.0`, `2.11` or `2.11.0+cu130`; None: the newest.

    Raises:
        NativeEngineError: nothing that fits is set up; the message says how to set it up.
    """
    mine = [build for build in installed() if build.python == python_tag()]
    fitting = [build for build in mine if version is None or _fits(build, version)]
    if fitting:
        return fitting[-1]
    wanted = f" --torch {version}" if version else ""
    have = ", ".join(build.torch_version for build in mine) or "nothing"
    minor = torch_versions.parse(version) if version else None
    unknown = ""
    if version and minor not in torch_versions.KNOWN_RULES:
        unknown = f", and vramlab does not support it (supported: {torch_versions.KNOWN})"
    what_to_do = f"; run `vramlab native setup{wanted}`"
    if unknown and (minor is None or minor < torch_versions.NEWEST):
        what_to_do = ""
    raise NativeEngineError(
        f"PyTorch{f' {version}' if version else ''} is not set up for the native engine and "
        f"{python_tag()} (set up: {have}){unknown}{what_to_do}"
    )


def _fits(build: Build, version: str) -> bool:
    return build.torch_version == version or f"{build.release}.".startswith(f"{version}.")


def _numbers(release: str) -> list[int]:
    return [int(part) if part.isdigit() else 0 for part in release.split(".")]


def write(build: Build, folder: Path) -> None:
    """Write what a build is into a folder, which is or will be `build.folder`.

    Raises:
        OSError: it cannot be written; what was there before still is.
    """
    data = asdict(build)
    del data["folder"]
    text = json.dumps(data, default=str, indent=2)
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        file = Path(unfinished, "build.json")
        file.write_text(f"{text}\n", encoding="utf-8")
        file.replace(folder / file.name)


def _read(path: Path) -> Build:
    data = json.loads(path.read_text(encoding="utf-8"))
    paths = {name: data.pop(name) for name in ("site", "cudnn", "nvrtc", "triton")}
    found: dict[str, Any] = {name: value and Path(value) for name, value in paths.items()}
    return Build(folder=path.parent, **found, **data)


def remove(build: Build) -> None:
    """Remove a build, and the PyTorch and libraries in the cache that no other build uses.

    Raises:
        NativeEngineError: it cannot be removed.
    """
    cache.remove(build.folder)
    in_use = {folder for other in installed() for folder in other._own_sites()}
    for folder in build._own_sites():
        if folder not in in_use and folder.is_dir():
            cache.remove(folder)


def unused_sites() -> list[Path]:
    """List what was fetched and serves no build: one could not be set up, or was updated."""
    in_use = {folder for build in installed() for folder in build._own_sites()}
    return sorted(set((cache.folder() / "sites").glob("*")) - in_use)


def remove_unused_sites() -> None:
    """Remove what `unused_sites` lists.

    Raises:
        NativeEngineError: it cannot be removed.
    """
    for folder in unused_sites():
        cache.remove(folder)
