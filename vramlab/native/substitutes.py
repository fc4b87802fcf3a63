"""Make the substitute libraries for what a PyTorch needs, and check that nothing is missing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from vramlab.native import elf, generate
from vramlab.native.compiler import link
from vramlab.native.elf import Symbol
from vramlab.native.errors import NativeEngineError
from vramlab.native.libraries import LIBRARIES, Library, of_file
from vramlab.native.needs import Needs
from vramlab.native.report import CORE

SOURCES = Path(__file__).parent / "csrc"


def compile_all(
    needs: Needs, folder: Path, macros: Mapping[str, int], compiler: Sequence[str]
) -> None:
    """Make every library that is needed, and the driver's and NVML's, in a folder.

    Args:
        needs: symbols by library.
        folder: an existing folder, for the libraries alone.
        macros: CUDA_VERSION (1000 * major + 10 * minor), and from `needs.versions` what is known.
        compiler: from `find_compiler`.

    Raises:
        NativeEngineError: a source does not compile, or a symbol that is needed is missing.
    """
    core = folder / CORE
    core_sources = sorted(SOURCES.glob("core/*.c"))
    link(compiler, core, core_sources, include=SOURCES, macros=macros)
    always = {library.always: frozenset[Symbol]() for library in LIBRARIES if library.always}
    for file, needed in (always | needs).items():
        _compile(of_file(file), folder / file, needed, macros, compiler)
    if missing := missing_symbols(needs, folder):
        raise NativeEngineError(
            f"the stub libraries lack {len(missing)} functions that this PyTorch needs: "
            f"{', '.join(missing[:10])}."
        )


def _compile(
    library: Library,
    out: Path,
    needed: frozenset[Symbol],
    macros: Mapping[str, int],
    compiler: Sequence[str],
) -> None:
    stubs = out.with_name(f"{library.stem}.stubs.c")
    stubs.write_text(generate.stubs(library, out.name, needed), encoding="utf-8")
    script = generate.version_script(needed)
    map_file = None
    if script:
        map_file = out.with_name(f"{library.stem}.map")
        map_file.write_text(script, encoding="utf-8")
    sources = [path for pattern in library.sources for path in sorted(SOURCES.glob(pattern))]
    link(
        compiler,
        out,
        [*sources, stubs],
        include=SOURCES,
        macros=macros,
        libraries=[out.with_name(CORE)],
        version_script=map_file,
    )
    stubs.unlink()
    if map_file:
        map_file.unlink()


def missing_symbols(needs: Needs, folder: Path) -> list[str]:
    """Name what is needed and not defined in a folder's libraries, as `name@version (library)`."""
    missing = []
    for file, needed in needs.items():
        path = folder / file
        defined = elf.read(path).defined if path.exists() else frozenset()
        names = {symbol.name for symbol in defined}
        for symbol in needed:
            wanted = Symbol(symbol.name, symbol.version)
            if wanted in defined or (symbol.version is None and symbol.name in names):
                continue
            missing.append(f"{symbol.name}@{symbol.version} ({file})")
    return sorted(missing)


def sources_fingerprint() -> str:
    """Digest what this vramlab makes substitutes from, to eight hexadecimal digits."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    made_by = [here / name for name in ("compiler.py", "generate.py", "libraries.py")]
    for path in sorted([*SOURCES.rglob("*.[ch]"), *made_by]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def fingerprint(needs: Needs) -> str:
    """Digest everything that the substitutes of a PyTorch are made of."""
    digest = hashlib.sha256(sources_fingerprint().encode())
    for file in sorted(needs):
        digest.update(f"{file}{sorted(map(str, needs[file]))}".encode())
    return digest.hexdigest()[:8]
