"""Libraries with functions of NVIDIA's, or that need them: of packages, and preloaded ones."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vramlab.native import elf
from vramlab.native.builds import Build
from vramlab.native.elf import SharedLibrary, Symbol
from vramlab.native.errors import NativeEngineError
from vramlab.native.libraries import LIBRARIES, SUBSTITUTED


@dataclass(frozen=True)
class Missing:
    """What one library of a package needs and does not find on the native engine."""

    library: Path
    """The package's own."""
    files: tuple[str, ...]
    """Libraries of NVIDIA's that are not substituted here."""
    functions: tuple[str, ...]
    """Functions that the substitutes lack."""


def missing_for(package: str, build: Build) -> list[Missing]:
    """Look through the shared libraries of a package, without loading any.

    A library for another version of CUDA needs files of other names, all of which are missing; the
    package then takes another of its libraries, if it has one.

    Args:
        package: what is imported, such as `bitsandbytes`, or the path of a library or a folder.
        build: the PyTorch that it shall run with.

    Returns:
        One for each library that misses something.

    Raises:
        NativeEngineError: there is no such package, or it has no library that uses CUDA.
    """
    defined = {path.name: elf.read(path).defined for path in build.libraries.glob("*.so*")}
    found, with_cuda = [], 0
    for path in _libraries(package):
        library = elf.read(path)
        wanted = [name for name in library.libraries if name.startswith(SUBSTITUTED)]
        if not wanted and not _of_nvidia(library):
            continue
        with_cuda += 1
        own = {name for name in wanted if (path.parent / name).exists()}
        files = tuple(name for name in wanted if name not in defined and name not in own)
        names = {symbol.name for symbols in defined.values() for symbol in symbols}
        functions = sorted(
            {symbol.name for symbol in _of_nvidia(library) if symbol.library not in own} - names
        )
        if files or functions:
            found.append(Missing(path, files, tuple(functions)))
    if not with_cuda:
        raise NativeEngineError(f"{package} has no CUDA libraries, so there is nothing to check.")
    return found


def has_cuda(path: Path) -> bool:
    """Return whether a library is one of NVIDIA's by its name, or defines a function of theirs.

    Such as what counts or limits a GPU's memory for several programs, by functions of the same
    names. A file that does not exist, or is no library, is none.
    """
    if path.name.partition(".so")[0] in {library.stem for library in LIBRARIES}:
        return True
    try:
        defined = elf.read(path).defined
    except (OSError, NativeEngineError):
        return False
    return any(known.has(symbol.name) for symbol in defined for known in LIBRARIES)


def _of_nvidia(library: SharedLibrary) -> list[Symbol]:
    """Return the symbols that it needs of NVIDIA's libraries, by their versions or their names."""
    return [
        symbol
        for symbol in library.needed
        if (symbol.library or "").startswith(SUBSTITUTED)
        or (symbol.library is None and any(known.has(symbol.name) for known in LIBRARIES))
    ]


def _libraries(package: str) -> Iterator[Path]:
    """Return the shared libraries of a package, or of a path."""
    path = Path(package)
    if path.is_file():
        yield path
        return
    folders = [path] if path.is_dir() else _folders(package)
    for folder in folders:
        for file in sorted(folder.rglob("*.so*")):
            if file.is_file() and _is_elf(file):
                yield file


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _folders(package: str) -> list[Path]:
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise NativeEngineError(f"no installed package and no file named {package!r}.")
    return [Path(folder) for folder in found.submodule_search_locations or ()]
