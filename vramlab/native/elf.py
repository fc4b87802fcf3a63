"""What shared libraries need and define: names, versions and libraries in their dynamic symbols.

64-bit little-endian ELF alone. Sources: System V Application Binary Interface, "Object Files" and
"Dynamic Linking"; Linux Standard Base, "Symbol Versioning".
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from vramlab.native.errors import NativeEngineError

_DYNAMIC, _DYNSYM = 6, 11
_VERDEF, _VERNEED, _VERSYM = 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_DT_NEEDED = 1
_WEAK = 2
_UNDEFINED = 0
_HIDDEN_VERSION = 0x8000
"""Set where a version is not the one that a name without version means."""


class Symbol(NamedTuple):
    """A dynamic symbol."""

    name: str
    version: str | None
    """The node of its version script, such as `libcudart.so.13`; None: it has none."""
    library: str | None = None
    """Of a needed symbol with version: the library that shall have it."""


@dataclass(frozen=True)
class SharedLibrary:
    """What one file asks of others, and offers them."""

    libraries: tuple[str, ...]
    """Names of libraries that it is linked with."""
    needed: frozenset[Symbol]
    """Symbols that others must define; weak ones, which may be missing, are left out."""
    defined: frozenset[Symbol]
    """Symbols that it defines."""


class _Section(NamedTuple):
    kind: int
    offset: int
    size: int
    link: int
    info: int


def read(path: Path) -> SharedLibrary:
    """Read the dynamic symbols of a shared library.

    Raises:
        NativeEngineError: the file is no 64-bit little-endian ELF file, or not all of one.
    """
    with path.open("rb") as file:
        if file.read(6) != b"\x7fELF\x02\x01":
            raise NativeEngineError(f"{path} is not a shared library for 64-bit Linux.")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _Reader(data).library()
            except (IndexError, UnicodeDecodeError, struct.error) as error:
                raise NativeEngineError(f"{path} is damaged: {error}") from error


def section(content: bytes | mmap.mmap, name: str) -> bytes:
    """Return a section's content by its name; nothing if it is missing, or without an ELF file."""
    for found, begin, size in _named_sections(content):
        if found == name:
            return content[begin : begin + size]
    return b""


def section_sizes(content: bytes) -> list[tuple[str, int]]:
    """Return the name and size of each section of an ELF file; none where it is no such file."""
    return [(name, size) for name, _, size in _named_sections(content)]


def _named_sections(content: bytes | mmap.mmap) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size of each section."""
    if content[:6] != b"\x7fELF\x02\x01":
        return
    (start,) = struct.unpack_from("<Q", content, 40)
    size, count, of_names = struct.unpack_from("<HHH", content, 58)
    sections = [struct.unpack_from("<IIQQQQ", content, start + n * size) for n in range(count)]
    if of_names >= count:
        return
    strings = sections[of_names][4]
    for name, _, _, _, offset, bytes_of_it in sections:
        begin = strings + name
        yield content[begin : content.find(b"\0", begin)].decode(), offset, bytes_of_it


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        (start,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        self._sections = [self._section(start + number * size) for number in range(count)]

    def _section(self, at: int) -> _Section:
        kind, _, _, offset, size, link, info = struct.unpack_from("<IQQQQII", self._data, at + 4)
        return _Section(kind, offset, size, link, info)

    def _of_kind(self, kind: int) -> _Section | None:
        return next((section for section in self._sections if section.kind == kind), None)

    def _text(self, strings: _Section, at: int) -> str:
        start = strings.offset + at
        return self._data[start : self._data.find(b"\0", start)].decode()

    def library(self) -> SharedLibrary:
        needed, defined = set(), set()
        table = self._of_kind(_DYNSYM)
        if table is not None:
            strings = self._sections[table.link]
            versions = self._versions(table.size // 24)
            wanted, own = self._needed_versions(), self._own_versions()
            content = self._data[table.offset : table.offset + table.size]
            for number, (name, info, _, section, _, _) in enumerate(
                struct.iter_unpack("<IBBHQQ", content)
            ):
                version = versions[number] & ~_HIDDEN_VERSION
                if number == 0:
                    continue
                if section != _UNDEFINED:
                    defined.add(Symbol(self._text(strings, name), own.get(version)))
                elif info >> 4 != _WEAK:
                    library, node = wanted.get(version, (None, None))
                    needed.add(Symbol(self._text(strings, name), node, library))
        return SharedLibrary(self._libraries(), frozenset(needed), frozenset(defined))

    def _libraries(self) -> tuple[str, ...]:
        section = self._of_kind(_DYNAMIC)
        if section is None:
            return ()
        content = self._data[section.offset : section.offset + section.size]
        entries = struct.iter_unpack("<qQ", content)
        strings = self._sections[section.link]
        return tuple(self._text(strings, value) for tag, value in entries if tag == _DT_NEEDED)

    def _versions(self, count: int) -> tuple[int, ...]:
        """Return the number of each symbol's version; 0 and 1 mean none."""
        section = self._of_kind(_VERSYM)
        if section is None:
            return (0,) * count
        return struct.unpack_from(f"<{count}H", self._data, section.offset)

    def _needed_versions(self) -> dict[int, tuple[str, str]]:
        """Library and version node, by number."""
        section = self._of_kind(_VERNEED)
        found: dict[int, tuple[str, str]] = {}
        if section is None:
            return found
        strings, at = self._sections[section.link], section.offset
        for _ in range(section.info):
            _, count, file, first, following = struct.unpack_from("<HHIII", self._data, at)
            library, entry = self._text(strings, file), at + first
            for _ in range(count):
                _, _, number, name, step = struct.unpack_from("<IHHII", self._data, entry)
                found[number] = library, self._text(strings, name)
                entry += step
            at += following
        return found

    def _own_versions(self) -> dict[int, str]:
        """Version node, by number; the first one is the library itself."""
        section = self._of_kind(_VERDEF)
        found: dict[int, str] = {}
        if section is None:
            return found
        strings, at = self._sections[section.link], section.offset
        for _ in range(section.info):
            _, flags, number, _, _, first, step = struct.unpack_from("<HHHHIII", self._data, at)
            if not flags & 1:
                (name,) = struct.unpack_from("<I", self._data, at + first)
                found[number] = self._text(strings, name)
            at += step
        return found
