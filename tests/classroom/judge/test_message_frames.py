"""Messages are read exactly, however they arrive, and can be forgotten."""

from __future__ import annotations

import os
import struct
import threading

import pytest

from vramlab_classroom.sandbox.frames import read_frame, write_frame


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


def test_messages_come_one_by_one_and_end(pipe) -> None:
    reading, writing = pipe
    for message in (b"first", b"", b"\x00\x00\n{}"):
        write_frame(writing, message)
    os.close(writing)
    assert [read_frame(reading) for _ in range(4)] == [b"first", b"", b"\x00\x00\n{}", None]


def test_a_message_that_is_larger_than_a_pipe_arrives(pipe) -> None:
    reading, writing = pipe
    message = bytes(range(256)) * 4096  # 1 MiB; a pipe of Linux holds 64 KiB
    writer = threading.Thread(target=write_frame, args=(writing, message))
    writer.start()
    assert read_frame(reading) == message
    writer.join()
    os.close(writing)


@pytest.mark.parametrize("written", [b"\x00", struct.pack("!Q", 4), struct.pack("!Q", 4) + b"abc"])
def test_a_message_that_breaks_off_is_none(pipe, written: bytes) -> None:
    reading, writing = pipe
    os.write(writing, written)
    os.close(writing)
    assert read_frame(reading) is None
