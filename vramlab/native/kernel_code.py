"""How much code each kernel of a PyTorch has for one GPU, for what the native engine counts.

nvcc puts the code of a library's kernels into its section `.nv_fatbin`: containers of one file for
each architecture, compressed by zstd or LZ4. Their layout is documented by public projects, such as
`FORMAT_SPECIFICATION.md` of GrigoryEvko/nvopen-tools; what is inside is an ELF file, with the code
of each function in a section `.text.NAME`.

Reading takes some seconds for each architecture, once: the answer is kept beside the substitutes.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from vramlab.native import elf
from vramlab.units import KIB

_CONTAINER = struct.Struct("<IHHQ")
"""Magic number, version, bytes of this header, and of all entries."""
_MAGIC = 0xBA55ED50
_ENTRY = struct.Struct("<HxxIQIxxxxxxxxI8xQ8xQ")
"""Kind, bytes of this header, bytes in the container; compressed bytes, architecture, flags, and
bytes when they are no longer compressed."""
_ELF = 2
_LZ4, _ZSTD = 0x2000, 0x8000
"""Flags: how an entry is compressed."""

_RECORD = struct.Struct("<QIHH")
"""`function_t` in csrc/core/loading.c."""
_MOST_MODULES = 4096

_Unpack = Callable[[bytes, int], bytes | None]


class _Entry(NamedTuple):
    architecture: int
    flags: int
    content: bytes
    unpacked_bytes: int


def table_file(folder: Path, site: Path, capability: tuple[int, int]) -> Path | None:
    """Return the file with the code sizes for a GPU; it is created if missing.

    Args:
        folder: of the build.
        site: the folder that has `torch`.
        capability: of the GPU.

    Returns:
        None where the code cannot be read: there is no zstd or LZ4 on this system, or no room; or
        the build is not in place yet.
    """
    file = folder / f"code-{capability[0]}.{capability[1]}"
    if file.exists():
        return file
    if not folder.is_dir():
        return None  # it is only being made
    records = bytearray()
    for name, (code_bytes, module, data_bytes) in sorted(
        (hash_of(name), sizes) for name, sizes in _functions(site, capability).items()
    ):
        records += _RECORD.pack(name, code_bytes, module % _MOST_MODULES, data_bytes // KIB)
    if not records:
        return None
    try:
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            made = Path(unfinished, file.name)
            made.write_bytes(records)
            made.replace(file)
    except OSError:
        return None
    return file


def hash_of(name: str) -> int:
    """Compute FNV-1a of 64 bits, as csrc/core/loading.c does."""
    found = 0xCBF29CE484222325
    for byte in name.encode():
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found


def _functions(site: Path, capability: tuple[int, int]) -> dict[str, tuple[int, int, int]]:
    """Bytes of code, module and the module's bytes of data, by a kernel's mangled name."""
    found: dict[str, tuple[int, int, int]] = {}
    module = 0
    for library in sorted((site / "torch" / "lib").glob("*.so")):
        for entries in _containers(library):
            module += 1
            entry = _best(entries, capability)
            content = None if entry is None else _unpacked(entry)
            if content is None:
                continue
            sizes = elf.section_sizes(content)
            data_bytes = sum(n for name, n in sizes if name in (".nv.global", ".nv.global.init"))
            for name, size in sizes:
                if name.startswith(".text."):
                    found[name.removeprefix(".text.")] = size, module, data_bytes
    return found


def _containers(library: Path) -> Iterator[list[_Entry]]:
    """Return the entries of each container of a library."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        section = elf.section(data, ".nv_fatbin")
    at = 0
    while at + _CONTAINER.size <= len(section):
        magic, _, header_bytes, size = _CONTAINER.unpack_from(section, at)
        if magic != _MAGIC:
            at += 8  # containers are aligned to it
            continue
        yield list(_entries(section[at + header_bytes : at + header_bytes + size]))
        at += header_bytes + size + -(header_bytes + size) % 8


def _entries(content: bytes) -> Iterator[_Entry]:
    at = 0
    while at + _ENTRY.size <= len(content):
        kind, header, size, packed, architecture, flags, unpacked = _ENTRY.unpack_from(content, at)
        if kind == _ELF:
            begin = at + header
            yield _Entry(architecture, flags, content[begin : begin + (packed or size)], unpacked)
        at += header + size


def _best(entries: list[_Entry], capability: tuple[int, int]) -> _Entry | None:
    """Return the entry that CUDA takes: of the same major version, the latest not above it."""
    wanted = 10 * capability[0] + capability[1]
    fitting = [e for e in entries if wanted // 10 * 10 <= e.architecture <= wanted]
    return max(fitting, key=lambda entry: entry.architecture, default=None)


def _unpacked(entry: _Entry) -> bytes | None:
    if not entry.flags & (_LZ4 | _ZSTD):
        return entry.content
    unpack = _unpacker(_ZSTD if entry.flags & _ZSTD else _LZ4)
    return None if unpack is None else unpack(entry.content, entry.unpacked_bytes)


def _unpacker(kind: int) -> _Unpack | None:
    """Return what unpacks, of the system's libraries; None where it is missing."""
    name = "libzstd.so.1" if kind == _ZSTD else "liblz4.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None

    def unpack(content: bytes, unpacked_bytes: int) -> bytes | None:
        out = ctypes.create_string_buffer(unpacked_bytes)
        size, room = ctypes.c_size_t(len(content)), ctypes.c_size_t(unpacked_bytes)
        if kind == _ZSTD:
            library.ZSTD_decompress.restype = ctypes.c_size_t
            done = library.ZSTD_decompress(out, room, content, size)
        else:
            done = library.LZ4_decompress_safe(content, out, len(content), unpacked_bytes)
        return out.raw if done == unpacked_bytes else None

    return unpack
