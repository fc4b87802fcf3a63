"""What the operating system does to keep jobs apart, and away from the pool.

Linux has all of it; elsewhere a job is a process group, which is killed as one.

Best is to be the first process of a PID namespace, as in the sandboxes of `vramlab_classroom`:
then the pool can kill whatever a job leaves behind with one call, however deep it hides, and the
kernel lets no job signal the pool. Otherwise what a job leaves behind comes to the pool, as to a
subreaper, which kills it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import tempfile
from functools import cache
from pathlib import Path

# Source: include/uapi/linux/prctl.h, Linux 6.1.
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

STANDARD_STREAMS = 3


def confine_pool() -> None:
    """Make this process one that its jobs can neither read nor trace, and that inherits theirs."""
    # An interrupt is for the judge, who then closes the pool. The first process of a namespace
    # is safe from all signals that it has no handler for, and Python has one for this.
    signal.signal(signal.SIGINT, signal.SIG_DFL if _is_first_process() else signal.SIG_IGN)
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def confine_job(reply: int) -> None:
    """Make this fork a group of processes of its own, with no open file but its reply."""
    os.setpgid(0, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(STANDARD_STREAMS):
        os.dup2(nowhere, stream)
    os.closerange(STANDARD_STREAMS, reply)
    os.closerange(reply + 1, os.sysconf("SC_OPEN_MAX"))


def end_job(job: int) -> int:
    """Kill a job's process and every process that it has left; give the job's wait status."""
    _kill(-1 if _is_first_process() else -job)
    _kill(job)  # it may not have come as far as a group of its own
    _, status = os.waitpid(job, 0)
    # When a process has ended, those it had started are ours already.
    while left := _children():
        for child in left:
            _kill(child)
            os.waitpid(child, 0)
    return status


def memory_of_job() -> int:
    """Sum up what all processes of a job hold, in bytes, beyond what one has from the pool.

    Known in a PID namespace only; elsewhere 0.
    """
    if not _is_first_process():
        return 0
    held = [_resident_bytes(path) for path in Path("/proc").glob("[0-9]*/statm")]
    return sum(held) - 2 * _resident_bytes(Path("/proc/self/statm"))


def clear_temporary_folder() -> None:
    """Remove what a trusted job has left in the temporary folder, where that is the pool's own."""
    for entry in _temporary_entries():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def is_spoiled() -> bool:
    """Return whether a job has left more in the temporary folder than what is easily removed.

    Empty folders, which torch leaves, and empty files are removed. Anything else was made by code
    that broke out of its language; it may be nested without end, so it should not be walked.
    """
    try:
        for entry in _temporary_entries():
            if entry.is_dir() and not entry.is_symlink():
                entry.rmdir()
            else:
                entry.unlink()
    except OSError:
        return True
    return False


def _temporary_entries() -> list[Path]:
    folder = Path(tempfile.gettempdir())
    return list(folder.iterdir()) if _is_first_process() and folder.is_mount() else []


def _is_first_process() -> bool:
    return os.getpid() == 1


def _resident_bytes(statm: Path) -> int:
    with contextlib.suppress(OSError):  # it may have ended
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _kill(process: int) -> None:
    # macOS answers EPERM for a group whose processes have all ended.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)


def _children() -> list[int]:
    """List the processes whose parent this one is, ended ones without a wait included."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return list(map(int, listed.read_text().split())) if listed.exists() else []


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    if _library().prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


@cache
def _library() -> ctypes.CDLL:
    """Return the C library; looking it up takes longer than all calls of a job."""
    return ctypes.CDLL(None, use_errno=True)
