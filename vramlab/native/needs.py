"""What a PyTorch CUDA build needs of NVIDIA's libraries, read from its own shared libraries."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from vramlab.native import elf
from vramlab.native.elf import Symbol
from vramlab.native.errors import NativeEngineError
from vramlab.native.libraries import LIBRARIES, SUBSTITUTED

Needs = dict[str, frozenset[Symbol]]
"""Symbols by the file name of the library that shall define them."""


@dataclass(frozen=True)
class TorchBuild:
    """A PyTorch that lies in a folder."""

    site: Path
    """The folder that has `torch`; programs get it in PYTHONPATH."""
    version: str
    """Such as `2.11.0+cu130`."""
    cuda: str
    """Such as `13.0`."""

    @property
    def cuda_version(self) -> int:
        """As CUDA counts: 1000 * major + 10 * minor."""
        major, minor = self.cuda.split(".")[:2]
        return 1000 * int(major) + 10 * int(minor)


def torch_build(site: Path) -> TorchBuild:
    """Return which PyTorch lies in a folder, without importing it.

    Raises:
        NativeEngineError: there is none, or it is a build without CUDA.
    """
    file = site / "torch" / "version.py"
    if not file.is_file():
        raise NativeEngineError(f"no PyTorch found in {site}.")
    text = file.read_text(encoding="utf-8")
    version = re.search(r"^__version__ = '(.+)'", text, re.MULTILINE)
    cuda = re.search(r"^cuda: Optional\[str\] = '(.+)'", text, re.MULTILINE)
    if version is None or cuda is None:
        name = version[1] if version else "of unknown version"
        raise NativeEngineError(f"the PyTorch in {site} ({name}) is a build without CUDA.")
    return TorchBuild(site, version[1], cuda[1])


def bundled(site: Path, package: str) -> str | None:
    """Read in its wheel's metadata which version of one of its libraries a PyTorch is for.

    Args:
        site: the folder that has `torch`.
        package: such as `nvidia-cudnn`, or `triton`.

    Returns:
        What pip takes, such as `nvidia-cudnn-cu13==9.19.0.56`; None: the metadata does not say.
    """
    for metadata in site.glob("torch-*.dist-info/METADATA"):
        text = metadata.read_text(encoding="utf-8")
        # Up to PyTorch 2.6 the version stands in brackets.
        pattern = rf"^Requires-Dist: ({package}(?:-cu\d+)?) ?\(?(==[\d.]+)"
        if found := re.search(pattern, text, re.MULTILINE):
            return found[1] + found[2]
    return None


def versions(site: Path) -> dict[str, int]:
    """Return the versions of cuDNN and NCCL that a PyTorch is for, as they count themselves.

    10000 * major + 100 * minor + patch, by the name of the macro in csrc.
    """
    found = {}
    packages = {"CUDNN_VERSION": "nvidia-cudnn", "NCCL_VERSION": "nvidia-nccl"}
    for macro, package in packages.items():
        if requirement := bundled(site, package):
            major, minor, patch = map(int, requirement.partition("==")[2].split(".")[:3])
            found[macro] = 10000 * major + 100 * minor + patch
    return found


def needs_of(build: TorchBuild) -> Needs:
    """Find the symbols that the build's libraries need, by library.

    Raises:
        NativeEngineError: a library of the build cannot be read, or a symbol belongs to none.
    """
    folder = build.site / "torch"
    found: dict[str, set[Symbol]] = defaultdict(set)
    unversioned: set[str] = set()
    for path in sorted({*folder.glob("lib/*.so*"), *folder.glob("*.so")}):
        library = elf.read(path)
        for file in library.libraries:
            if file.startswith(SUBSTITUTED):
                found[file]  # made even if nothing of it is needed
        for symbol in library.needed:
            if symbol.library is None:
                unversioned.add(symbol.name)
            elif symbol.library.startswith(SUBSTITUTED):
                found[symbol.library].add(symbol)
    if not found:
        raise NativeEngineError(f"the PyTorch in {build.site} does not link to CUDA libraries.")
    for library_known in LIBRARIES:
        mine = {name for name in unversioned if library_known.has(name)}
        if mine:
            file = _file_of(library_known.stem, library_known.always, found, mine)
            versioned = {symbol.name for symbol in found[file]}
            found[file] |= {Symbol(name, None) for name in mine - versioned}
    return {file: frozenset(symbols) for file, symbols in found.items()}


def _file_of(stem: str, always: str | None, found: dict[str, set[Symbol]], names: set[str]) -> str:
    for file in found:
        if file.partition(".so")[0] == stem:
            return file
    if always is None:
        raise NativeEngineError(
            f"PyTorch needs {', '.join(sorted(names)[:5])}, and links with no {stem}."
        )
    return always
