"""What the job pool has to know about a job: how much of the machine it may take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

try:
    import resource
except ImportError:  # Windows has none
    HAS_LIMITS = False
else:
    HAS_LIMITS = True

MIB = 2**20  # not from vramlab, which is not there where plain answers run
OPEN_FILES = 64


@dataclass(frozen=True)
class Limits:
    """Limits of a job. Those it has by default are meant for jobs that see a learner's code."""

    cpu_seconds: int
    """Seconds of computing, by which an answer that does not end is known."""

    wall_seconds: int
    """Seconds after which a job that waits, rather than computes, is given up."""

    memory_bytes: int
    """Memory beyond what the pool's process has: address space of each process, which Linux
    limits and macOS does not, and in a sandbox what all processes of the job hold together."""

    is_trusted: bool = False
    """The job runs the package's own code only, so it may write files and start processes."""

    runs_torch: bool = False
    """Some of torch's features start threads, and speak with themselves through sockets. Limits of
    Linux cannot tell threads from processes; the filter of system calls can."""

    starts_ranks: bool = False
    """The job starts a process for each rank, and the answer runs only in these. Each of them gives
    up the right to start further processes."""

    is_plain: bool = False
    """The job is an answer in plain Python: it opens no file once it has imported what it names,
    and is late after `wall_seconds`, whether it computes or waits."""

    reply_bytes: int = 4 * MIB

    def apply(self) -> None:
        """Put this process, and all that it may start, under the limits; there is no way back."""
        # One second between the limits: SIGXCPU, which tells the cause, comes before SIGKILL.
        _limit(resource.RLIMIT_CPU, self.cpu_seconds, self.cpu_seconds + 1)
        _limit(resource.RLIMIT_CORE, 0)
        held = Path("/proc/self/statm")
        if held.exists():
            pages = int(held.read_text().split()[0])
            _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + self.memory_bytes)
        if not self.is_trusted:
            _limit(resource.RLIMIT_FSIZE, 0)
            _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
        if not (self.is_trusted or self.runs_torch):
            # None but this one, however many others the user has. Linux lets root pass.
            _limit(resource.RLIMIT_NPROC, 0)


@dataclass(frozen=True)
class JobSpec:
    """Goes before a job, for the pool itself."""

    limits: Limits

    preload: tuple[str, ...] = ()
    """Modules to import before the fork, for this job and all later ones."""

    prepare: Mapping[str, Any] | None = None
    """What the server itself is to do before the fork, unless it has: no learner's code."""

    def as_data(self) -> bytes:
        return json.dumps(asdict(self), default=dict).encode()

    @classmethod
    def from_data(cls, data: bytes | bytearray) -> Self:
        fields = json.loads(data)
        return cls(Limits(**fields["limits"]), tuple(fields["preload"]), fields["prepare"])


def _limit(what: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, or leave a lower one as it is: our parent may have set it."""
    _, ceiling = resource.getrlimit(what)
    wanted = (soft, soft if hard is None else hard)
    if ceiling != resource.RLIM_INFINITY:
        wanted = (min(wanted[0], ceiling), min(wanted[1], ceiling))
    resource.setrlimit(what, wanted)
