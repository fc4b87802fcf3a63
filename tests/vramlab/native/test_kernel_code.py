"""How much code kernels have, read from a library made here."""

from __future__ import annotations

import struct
from pathlib import Path

from vramlab.native import kernel_code


def _elf(sections: dict[str, bytes]) -> bytes:
    """A 64-bit ELF file with some sections, and nothing else that is read."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in [*sections, ".shstrtab"])
    contents = [*sections.values(), names]
    body, offsets = b"", []
    for content in contents:
        offsets.append(64 + len(body))
        body += content
    headers, at = bytes(64), 1
    for name, content, offset in zip([*sections, ".shstrtab"], contents, offsets, strict=True):
        headers += struct.pack("<IIQQQQ24x", at, 1, 0, 0, offset, len(content))
        at += len(name) + 1
    head = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", 64 + len(body)) + bytes(10)
    return head + struct.pack("<HHH", 64, len(contents) + 1, len(contents)) + body + headers


def _container(entries: dict[int, bytes]) -> bytes:
    """A container with one uncompressed file for each architecture."""
    content = b""
    for architecture, file in entries.items():
        padded = file + bytes(-len(file) % 8)
        content += struct.pack("<HHIQ", 2, 0, 64, len(padded))
        content += struct.pack("<IIHHI", 0, 0, 0, 0, architecture) + bytes(32) + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def _site(folder: Path, *containers: bytes) -> Path:
    lib = folder / "torch" / "lib"
    lib.mkdir(parents=True)
    (lib / "libx.so").write_bytes(_elf({".nv_fatbin": b"".join(containers)}))
    return folder


def test_code_and_data_are_those_of_the_gpus_architecture(tmp_path: Path) -> None:
    """8.9 takes 8.6's code: CUDA runs the latest of the same major that is not later."""
    files = {
        80: _elf({".text.kernel": bytes(100)}),
        86: _elf({".text.kernel": bytes(300), ".nv.global": bytes(50)}),
        90: _elf({".text.kernel": bytes(900)}),
    }
    site = _site(tmp_path, _container(files))
    assert kernel_code._functions(site, (8, 9)) == {"kernel": (300, 1, 50)}
    assert kernel_code._functions(site, (8, 0)) == {"kernel": (100, 1, 0)}
    assert kernel_code._functions(site, (7, 5)) == {}


def test_the_table_is_sorted_by_hash_and_made_once(tmp_path: Path) -> None:
    file = _elf({".text.a": bytes(10), ".text.b": bytes(20), ".nv.global.init": bytes(3072)})
    site = _site(tmp_path / "site", _container({90: file}))
    table = kernel_code.table_file(tmp_path, site, (9, 0))
    assert table is not None
    records = list(struct.iter_unpack("<QIHH", table.read_bytes()))
    hashes = {kernel_code.hash_of("a"): 10, kernel_code.hash_of("b"): 20}
    assert records == [(name, hashes[name], 1, 3) for name in sorted(hashes)]  # 3072 B = 3 KiB
    assert kernel_code.table_file(tmp_path, tmp_path / "nowhere", (9, 0)) == table
