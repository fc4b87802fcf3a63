"""The filter of system calls, run on paper for each kind of processor.

What it does to real processes is in `tests/classroom/run/test_escapes.py`.
"""

from __future__ import annotations

import platform
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from vramlab_classroom.sandbox import syscalls

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
OWN_PROCESS = 77
FIRST_AFTER_LINUX_6_1 = 451  # cachestat
ALLOWED, NO_PERMISSION, NOT_THERE, KILLED = "allowed", "EPERM", "ENOSYS", "killed"
ACTIONS = {
    0x7FFF0000: ALLOWED,
    0x00050000 + 1: NO_PERMISSION,
    0x00050000 + 38: NOT_THERE,
    0x80000000: KILLED,
}

Call = Callable[..., str]


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> syscalls._Machine:
    return syscalls._MACHINES[request.param]


@pytest.fixture
def call(machine: syscalls._Machine) -> Call:
    """Return a function that gives what the filter decides on a system call."""
    code = syscalls._instructions(machine, machine.numbers.values(), OWN_PROCESS)
    program = list(syscalls._INSTRUCTION.iter_unpack(code))

    def decide(number: int, first_argument: int = 0, architecture: int | None = None) -> str:
        data = {0: number, 4: architecture or machine.architecture, 16: first_argument}
        loaded, index = 0, 0
        while True:
            operation, if_true, if_false, operand = program[index]
            index += 1
            match operation:
                case 0x20:
                    loaded = data[operand]
                case 0x06:
                    return ACTIONS[operand]
                case 0x15:
                    index += if_true if loaded == operand else if_false
                case 0x35:
                    index += if_true if loaded >= operand else if_false
                case 0x45:
                    index += if_true if loaded & operand else if_false

    return decide


def test_what_is_listed_is_refused_and_the_rest_is_not(
    call: Call, machine: syscalls._Machine
) -> None:
    special = {machine.clone, machine.clone3, machine.tgkill}
    refused = {number for number in range(500) if call(number) == NO_PERMISSION}
    assert refused == {*machine.numbers.values(), machine.clone, machine.tgkill}
    for number in set(range(500)) - refused - special:
        assert call(number) == (ALLOWED if number < FIRST_AFTER_LINUX_6_1 else NOT_THERE)


def test_threads_are_started_and_processes_are_not(call: Call, machine: syscalls._Machine) -> None:
    flags_of_a_thread, flags_of_a_fork = 0x003D0F00, 0x01200011
    assert call(machine.clone, flags_of_a_thread) == ALLOWED
    assert call(machine.clone, flags_of_a_fork) == NO_PERMISSION
    assert call(machine.clone3) == NOT_THERE


def test_signals_go_to_oneself_only(call: Call, machine: syscalls._Machine) -> None:
    assert call(machine.tgkill, OWN_PROCESS) == ALLOWED
    assert call(machine.tgkill, 1) == NO_PERMISSION


def test_calls_that_are_newer_than_the_list_are_not_there(call: Call) -> None:
    fchmodat2 = 452
    assert call(fchmodat2) == NOT_THERE


def test_calls_by_other_numbers_get_nowhere(call: Call, machine: syscalls._Machine) -> None:
    read = 0
    assert call(read | 0x40000000) == NO_PERMISSION
    assert call(read, architecture=0x40000003) == KILLED  # that of 32 bit programs


@pytest.mark.parametrize("name", HEADERS)
def test_numbers_are_those_of_linux(name: str) -> None:
    if not HEADERS[name].exists():
        pytest.skip("the headers of Linux are not installed here")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", HEADERS[name].read_text())
    numbers = {call: int(number) for call, number in defined}
    machine = syscalls._MACHINES[name]
    listed = {"clone": machine.clone, "clone3": machine.clone3, "tgkill": machine.tgkill}
    listed |= machine.numbers
    assert {call: numbers.get(call) for call in listed} == listed


def test_on_other_processors_nothing_is_filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    syscalls.refuse_system_calls(but=())
    socket.socket().close()
