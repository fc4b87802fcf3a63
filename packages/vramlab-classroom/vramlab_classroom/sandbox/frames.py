"""Messages between the judge and the job pool: eight bytes that say how long, then so many bytes.

Each side reads exactly what a message has, so nothing inside a message can pass for another one.
"""

from __future__ import annotations

import os
import struct

LENGTH = struct.Struct("!Q")


def write_frame(descriptor: int, payload: bytes | bytearray | memoryview) -> None:
    """Write one message.

    Raises:
        BrokenPipeError: the reader has closed the pipe.
    """
    for part in (LENGTH.pack(len(payload)), payload):
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def read_frame(descriptor: int) -> bytearray | None:
    """Read one message; None when the other side has closed, before it or in the middle."""
    length = _read_exactly(descriptor, LENGTH.size)
    return None if length is None else _read_exactly(descriptor, *LENGTH.unpack(length))


def forget(message: bytearray | memoryview) -> None:
    """Overwrite a message, so that no process that is forked from this one finds it in memory."""
    message[:] = bytes(len(message))


def _read_exactly(descriptor: int, count: int) -> bytearray | None:
    buffer = bytearray(count)
    rest = memoryview(buffer)
    while rest:
        read = _read_into(descriptor, rest)
        if not read:
            return None
        rest = rest[read:]
    return buffer


def _read_into(descriptor: int, buffer: memoryview) -> int:
    if hasattr(os, "readv"):
        return os.readv(descriptor, [buffer])
    part = os.read(descriptor, len(buffer))  # on Windows: it leaves a copy, which does no harm
    buffer[: len(part)] = part
    return len(part)
