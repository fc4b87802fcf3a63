"""Takes from a job the system calls that no answer needs: processes, signals, tracing, sockets.

A filter of Linux (seccomp), which a process puts on itself for good and hands on to its threads.
It is what tells threads, which some of torch starts, from processes; what keeps a prediction that
is judged without a sandbox from the network, and every answer from the teacher's other programs;
and what leaves nothing of the kernel's own behind, such as memory that outlives its process.

It does not know which file a call is about: so an answer in plain Python may open none at all, and
for others files are the work of sandboxes and of other limits.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass

SOCKETS = ("socket",)
FORKS = ("fork", "clone")
"""System calls that start a copy of the process."""

FILES = (
    *("open", "openat", "openat2", "creat", "memfd_create", "readlink", "readlinkat"),
    *("unlink", "unlinkat", "rename", "renameat", "renameat2", "truncate"),
    *("link", "linkat", "symlink", "symlinkat", "mkdir", "mkdirat", "rmdir", "mknod", "mknodat"),
    *("chmod", "fchmodat", "chown", "lchown", "fchownat"),
    *("utime", "utimes", "utimensat", "futimesat"),
    *("setxattr", "lsetxattr", "removexattr", "lremovexattr"),
)
"""Whatever opens or changes a file by its name."""

# By name, the numbers on x86_64 and on aarch64, which has no fork but only clone. Source:
# arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h, Linux 6.1.
_REFUSED: dict[str, tuple[int, ...]] = {
    # the network
    "socket": (41, 198),
    # other programs and processes
    "fork": (57,),
    "vfork": (58,),
    "execve": (59, 221),
    "execveat": (322, 281),
    # signals
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    # what other processes hold
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # what stays after its process
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # another view of the system
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    # files by their names
    "open": (2,),
    "openat": (257, 56),
    "openat2": (437, 437),
    "creat": (85,),
    "memfd_create": (319, 279),
    "readlink": (89,),
    "readlinkat": (267, 78),
    "unlink": (87,),
    "unlinkat": (263, 35),
    "rename": (82,),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "truncate": (76, 45),
    "link": (86,),
    "linkat": (265, 37),
    "symlink": (88,),
    "symlinkat": (266, 36),
    "mkdir": (83,),
    "mkdirat": (258, 34),
    "rmdir": (84,),
    "mknod": (133,),
    "mknodat": (259, 33),
    "chmod": (90,),
    "fchmodat": (268, 53),
    "chown": (92,),
    "lchown": (94,),
    "fchownat": (260, 54),
    "utime": (132,),
    "utimes": (235,),
    "utimensat": (280, 88),
    "futimesat": (261,),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    # the kernel's less trodden paths
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
}


@dataclass(frozen=True)
class _Machine:
    """What a filter has to know about a kind of processor."""

    architecture: int
    """`AUDIT_ARCH_...` of include/uapi/linux/audit.h, which every call carries."""

    numbers: dict[str, int]
    """Of the system calls that are refused, by name."""

    clone: int
    clone3: int
    tgkill: int


def _column(index: int) -> dict[str, int]:
    return {name: row[index] for name, row in _REFUSED.items() if len(row) > index}


_MACHINES = {
    "x86_64": _Machine(0xC000003E, _column(0), clone=56, clone3=435, tgkill=234),
    "aarch64": _Machine(0xC00000B7, _column(1), clone=220, clone3=435, tgkill=131),
}

# Source: include/uapi/linux/{filter,bpf_common,seccomp,prctl}.h, Linux 6.1.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_INSTRUCTION = struct.Struct("HBBI")
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

_OTHER_NUMBERING = 0x40000000
"""Calls by x32's numbers, which an x86_64 kernel may take as well."""

_UNKNOWN = 451
"""The first call after those of Linux 6.1: what comes later is not told apart, so it is not there.
The C library then does without. `fchmodat2` is one of them, `setxattrat` another."""

_CLONE_THREAD = 0x00010000


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def refuse_system_calls(but: Collection[str]) -> None:
    """Refuse them to this process from here on. Needs no_new_privs; Linux only.

    Args:
        but: names of those that it may use all the same.
    """
    machine = _MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None:
        return
    refused = [machine.numbers[name] for name in machine.numbers if name not in but]
    instructions = _instructions(machine, refused, os.getpid(), may_fork="clone" in but)
    program = _Program(len(instructions) // _INSTRUCTION.size, instructions)
    # A kernel that was built without filters refuses. The other walls stand.
    ctypes.CDLL(None).prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program))


def _instructions(
    machine: _Machine, refused: Iterable[int], process: int, *, may_fork: bool = False
) -> bytes:
    refuse = (_RETURN, 0, 0, _ERROR | errno.EPERM)
    allow = (_RETURN, 0, 0, _ALLOW)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, machine.architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _OTHER_NUMBERING),
        refuse,
        (_AT_LEAST, 0, 1, _UNKNOWN),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    for number in refused:
        program += [(_EQUAL, 0, 1, number), refuse]
    program += [
        # The C library then starts its threads with clone, whose flags can be seen.
        (_EQUAL, 0, 1, machine.clone3),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_EQUAL, 0, 4, machine.clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        allow if may_fork else (_ANY_BIT, 0, 1, _CLONE_THREAD),
        allow,
        refuse,
        # A process may send signals to itself: that is how abort() ends it.
        (_EQUAL, 0, 3, machine.tgkill),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 1, 0, process),
        refuse,
        allow,
    ]
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)
