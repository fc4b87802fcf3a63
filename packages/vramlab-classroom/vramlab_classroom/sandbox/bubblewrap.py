"""The sandbox in which answers are judged: what one could reach that broke out of its process.

An answer in plain Python runs without the system calls for files, network and programs
(`plain_answers.py`, `syscalls.py`); a repaired program in a language that can do nothing but
answer (`vramlab_classroom.judge.restricted`). Each runs in a fork with limits of its own
(`job_limits.py`), which ends with all that it started. A sandbox stands around these processes and
all of their forks, for the day when one of that has a hole:

- `bubblewrap`: no network, and of the file system only the operating system's programs, Python's
  environment and this package, all read-only, with a small private folder for temporary files. No
  submission, gradebook, solution or seed is in it, nor anybody's home.
- `docker` and `podman`: the same in a container, from an image that the teacher has built from
  `autograder/Containerfile`. This package is mounted, read-only, so a fixed exercise needs no
  new image.
- `limits`: nothing around it. It works everywhere, and warns: an answer that breaks out can get at
  all files that the teacher can; a repaired program at the network, too; and without Linux,
  any answer at files, network, programs and processes.

In the first three the job pool is the first process of a PID namespace, which is what lets it kill
everything that a job leaves behind.

What none of them can keep: a repaired program that breaks out of its language still shares a
process with the evidence about itself. It cannot alter anybody else's result, but it could claim
that it ran. And the kernel is shared: a hole in Linux
itself is a way out of bubblewrap and of containers.
"""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from vramlab.errors import VramlabError
from vramlab.units import GIB, MIB
from vramlab_classroom.sandbox.packages import judging_packages, search_path

SCRATCH = "/jobs"
"""The private folder for temporary files. Not /tmp, in which a course or Python itself may lie."""

SCRATCH_BYTES = 64 * MIB
CONTAINER_MEMORY_BYTES = 8 * GIB
PROCESSES = 128
"""Processes and threads of a pool with its job: ranks that exchange values have most."""

NOBODY = 65534

LIMITED_PROCESSES = ("prlimit", f"--nproc={PROCESSES}:{PROCESSES}")

COUNTING_KERNEL = (5, 14)
"""From this Linux on, processes are counted per user namespace; before, all that a user has."""

NAMELESS_USERS = range(61184, 65520)
"""Source: systemd's `DynamicUser=`, which takes these for services, since no user has them."""

_ALL_FILES = (
    "an answer could read and change every file that you can: the gradebook, other submissions, "
    "the solutions, the seed of the hidden cases."
)

TRIAL_SAYS = "a job server can be started"
TRIAL = f"import vramlab_classroom.judge.job_server; print({TRIAL_SAYS!r})"
TRIAL_SECONDS = 60

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")
PACKAGE_FOLDERS = ("site-packages", "dist-packages")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives")


class SandboxError(VramlabError):
    """A sandbox does not work here; the message says why, and what to do."""


@dataclass(frozen=True)
class Sandbox(ABC):
    """Where a pool runs. Plain data, so that it can be sent to another machine."""

    name: ClassVar[str]
    warning: ClassVar[str] = ""
    """What a teacher has to know before relying on it; empty if nothing."""

    @abstractmethod
    def prefix(self, visible: Sequence[Path] = (), hidden: Sequence[Path] = ()) -> list[str]:
        """Return the command line that starts Python inside, for `JobPool(command=...)`.

        Args:
            visible: folders that can be read inside, besides what Python needs.
            hidden: folders that must not be seen even if they lie in one that is: the course.
        """

    @abstractmethod
    def advice(self) -> str:
        """Describe what to do where it does not work."""

    def try_out(self) -> None:
        """Start Python inside, once.

        Raises:
            SandboxError: that does not work here.
        """
        command = [*self.prefix(), "-P", "-c", TRIAL]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, search_path()))}
        try:
            trial = subprocess.run(
                command, capture_output=True, text=True, env=environment, timeout=TRIAL_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._error(f"{error}") from error
        if trial.returncode or trial.stdout.strip() != TRIAL_SAYS:
            reasons = trial.stderr.strip().splitlines() or [f"exit status {trial.returncode}"]
            raise self._error(reasons[-1])

    def _error(self, reason: str) -> SandboxError:
        return SandboxError(
            f"the sandbox {self.name} does not work here: {reason}. {self.advice()}"
        )


@dataclass(frozen=True)
class Bubblewrap(Sandbox):
    """Linux namespaces, by the program bwrap (0.7 or newer); needs no rights and no daemon."""

    name = "bubblewrap"

    def prefix(self, visible: Sequence[Path] = (), hidden: Sequence[Path] = ()) -> list[str]:
        return [
            # Not --die-with-parent, which goes by the thread that started it: a pool ends when
            # its stdin does.
            *("bwrap", "--as-pid-1", "--new-session", "--hostname", "judge"),
            *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
            "--unshare-cgroup-try",
            *("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
            *_mounts(visible, hidden),
            *("--perms", "1777", "--size", f"{SCRATCH_BYTES}", "--tmpfs", SCRATCH),
            *("--remount-ro", "/", "--chdir", SCRATCH),
            *("--setenv", "HOME", SCRATCH, "--setenv", "TMPDIR", SCRATCH),
            *("--setenv", "USER", "judge", "--setenv", "PYTHONUSERBASE", site.getuserbase()),
            *_without_privileges(),
            sys.executable,
        ]

    def advice(self) -> str:
        return (
            "It needs Linux, the package bubblewrap (apt install bubblewrap), and a kernel that "
            "lets you make user namespaces. For root it judges as a user who can read only what "
            "everybody can. Or choose another sandbox: a container, or limits."
        )


PASSED_VARIABLES = (
    *("PYTHONPATH", "OMP_NUM_THREADS", "THP_MEM_ALLOC_ENABLE", "MKL_DISABLE_FAST_MM"),
    "VRAMLAB_CUDNN",
)
"""What a pool sets, and a container passes on to its processes."""


@dataclass(frozen=True)
class Container(Sandbox):
    """A container of Docker or Podman."""

    image: str
    """Has Python and what the course needs; see `autograder/Containerfile`."""

    def prefix(self, visible: Sequence[Path] = (), hidden: Sequence[Path] = ()) -> list[str]:
        """Return the command line; nothing of `hidden` is in a container anyway."""
        folders = [*judging_packages().values(), *map(Path.resolve, visible)]
        return [
            *(self.name, "run", "--rm", "--interactive", "--pull", "never"),
            *("--network", "none", "--ipc", "none", "--read-only"),
            *("--tmpfs", f"{SCRATCH}:size={SCRATCH_BYTES},mode=1777"),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--pids-limit", f"{PROCESSES}"),
            *(
                "--memory",
                f"{CONTAINER_MEMORY_BYTES}",
                "--memory-swap",
                f"{CONTAINER_MEMORY_BYTES}",
            ),
            *self._user(),
            *(word for folder in folders for word in ("--volume", f"{folder}:{folder}:ro")),
            *(word for name in PASSED_VARIABLES for word in ("--env", name)),
            *("--env", f"HOME={SCRATCH}"),
            *("--env", f"TMPDIR={SCRATCH}", "--workdir", SCRATCH),
            *("--entrypoint", "python3", self.image),
        ]

    def advice(self) -> str:
        return (
            f"Is {self.name} running, and is there an image of that name? In the course's folder: "
            f"{self.name} build --tag {self.image} --file autograder/Containerfile ."
        )

    def _user(self) -> tuple[str, ...]:
        """Run as the teacher, who can read this package; if root, as an unprivileged user."""
        return ("--user", f"{os.getuid() or NOBODY}:{os.getgid() or NOBODY}")


@dataclass(frozen=True)
class Docker(Container):
    name = "docker"


@dataclass(frozen=True)
class Podman(Container):
    name = "podman"

    def _user(self) -> tuple[str, ...]:
        return ("--userns", "keep-id") if os.getuid() else super()._user()


@dataclass(frozen=True)
class LimitsOnly(Sandbox):
    """A process of its own with limits, and nothing around it."""

    name = "limits"
    warning = (
        "Answers are judged without a sandbox. Linux refuses them the system calls for files, "
        "network and programs, and a repaired program speaks a smaller language; but if one found "
        f"a way around that, {_ALL_FILES} It might reach the network, too."
        if sys.platform == "linux"
        else "Answers are judged without a sandbox, and this system has nothing that keeps "
        f"ordinary Python from files, network and programs: {_ALL_FILES} Grade a class on Linux, "
        "or in a container."
    )

    def prefix(self, visible: Sequence[Path] = (), hidden: Sequence[Path] = ()) -> list[str]:
        return [sys.executable]

    def advice(self) -> str:
        return "Python itself does not start as it should."


def best() -> tuple[Sandbox, str]:
    """Choose bubblewrap if it works here, else limits.

    Returns:
        The sandbox, and the warning to print; empty if there is nothing to warn of.
    """
    sandbox = Bubblewrap()
    try:
        sandbox.try_out()
    except SandboxError as error:
        return LimitsOnly(), f"{LimitsOnly.warning} (Because {error})"
    return sandbox, sandbox.warning


@cache
def best_command(course: Path) -> tuple[list[str], str]:
    """Return the command that starts Python in the best sandbox, and the warning to print.

    For nbgrader's own commands: see `JudgeTasks.pool_command`. It is found out once.

    Args:
        course: the folder of which nothing may be seen inside.
    """
    sandbox, warning = best()
    return sandbox.prefix(hidden=[course]), warning


def named(name: str, image: str = "vramlab") -> Sandbox:
    """Return the sandbox that a teacher has asked for.

    Args:
        name: bubblewrap, docker, podman or limits.
        image: for a container.

    Raises:
        SandboxError: there is none of that name, or it does not work here.
    """
    kinds: dict[str, Sandbox] = {
        sandbox.name: sandbox
        for sandbox in (Bubblewrap(), Docker(image), Podman(image), LimitsOnly())
    }
    if name not in kinds:
        raise SandboxError(f"there is no sandbox {name!r}; there are {', '.join(kinds)}")
    kinds[name].try_out()
    return kinds[name]


def _mounts(visible: Iterable[Path], hidden: Iterable[Path]) -> Iterator[str]:
    """Show what Python needs and what is `visible`, but nothing else of what is `hidden`.

    Of two folders of which one lies in the other, the inner one decides: a package may be shown in
    a course that is hidden in an environment that is shown.
    """
    shown = {
        folder.absolute() for folder in (*_environment(), *judging_packages().values(), *visible)
    }
    masks = {folder.absolute() for folder in hidden}
    for folder in map(Path, SYSTEM_FOLDERS):
        if folder.is_symlink():
            yield from ("--symlink", os.readlink(folder), f"{folder}")
        elif folder.is_dir():
            shown.add(folder)
    yield from ("--perms", "0755", "--dir", "/etc")
    for file in SYSTEM_FILES:
        yield from ("--ro-bind-try", file, file)
    for folder in sorted(shown | masks, key=lambda folder: (len(folder.parts), folder)):
        for parent in folder.parents[-2::-1]:  # from the top; bwrap's own would shut out nobody
            yield from ("--perms", "0755", "--dir", f"{parent}")
        if folder in shown:
            yield from ("--ro-bind-try", f"{folder}", f"{folder}")
        else:
            yield from ("--tmpfs", f"{folder}")
    for folder in masks - shown:
        yield from ("--remount-ro", f"{folder}")


def _environment() -> set[Path]:
    """List the folders that this Python is made of."""
    interpreter = Path(sys.executable).resolve().parents[1]
    folders = {interpreter, Path(sys.prefix), Path(sys.base_prefix)}
    # Packages of the user, or of another environment that this one builds upon.
    folders |= {path for path in map(Path, sys.path) if path.name in PACKAGE_FOLDERS}
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return folders | {Path(library) for library in libraries if library}


def _without_privileges() -> list[str]:
    """Return the words for bwrap by which the pool has no privileges, not even those of root.

    An ordinary user gets a user namespace, where the pool is that user. Root, whom limits of
    processes do not bind, becomes a user without name: another one for each process that starts
    pools, since Linux counts processes per user.
    """
    if not os.geteuid():
        user = NAMELESS_USERS[os.getpid() % len(NAMELESS_USERS)]
        needed = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
        return [
            *(word for capability in needed for word in ("--cap-add", capability)),
            *("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"),
            *("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
            *LIMITED_PROCESSES,
        ]
    counts_by_namespace = _kernel() >= COUNTING_KERNEL
    return [
        "--unshare-user",
        "--cap-drop",
        "ALL",
        *(LIMITED_PROCESSES if counts_by_namespace else ()),
    ]


def _kernel() -> tuple[int, ...]:
    """Return the version of Linux, as far as it is numbers."""
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
