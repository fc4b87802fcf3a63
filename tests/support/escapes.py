"""What code could try that has broken out of the language of answers.

Each function stands alone, since its source is submitted as an answer, and returns its result.
All of them are bounded in count, size and time, and go to the loopback device at most.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable


def as_answer(escape: Callable[..., object], name: str = "answer") -> str:
    """Write an escape as the source of an answer."""
    return f"{inspect.getsource(escape)}\n{name} = {escape.__name__}\n"


def tell(text: str) -> str:
    return text


def connect(port: int) -> str:
    import socket

    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError as error:
        return type(error).__name__
    return "connected"


def read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read(1000)
    except OSError as error:
        return type(error).__name__


def names_in(path: str) -> str:
    import os

    try:
        return " ".join(sorted(os.listdir(path)))
    except OSError as error:
        return type(error).__name__


def writes_into(paths: list[str]) -> str:
    """Make a folder in each, and a file of one byte; return what was possible."""
    import os
    from pathlib import Path

    made = []
    for path in map(Path, paths):
        try:
            os.mkdir(path / "left")
            made.append(f"folder in {path}")
        except OSError:
            pass
        try:
            (path / "left.txt").write_bytes(b"x")
            made.append(f"file in {path}")
        except OSError:
            pass
    return ", ".join(made)


def leave_things(folder: str) -> str:
    """Leave an empty file, a link, a closed folder, and folders in folders in folders ..."""
    import os

    os.close(os.open(f"{folder}/empty", os.O_CREAT))
    os.symlink("/usr", f"{folder}/link")
    os.makedirs(f"{folder}/closed/within")
    os.chmod(f"{folder}/closed", 0)
    os.chdir(folder)
    for _ in range(2000):
        os.mkdir("deeper")
        os.chdir("deeper")
    return "left"


def fill_disk(folder: str) -> str:
    """Write at most 256 MiB; return how many MiB it took, and what ended it."""
    written = 0
    try:
        with open(f"{folder}/full", "wb", buffering=0) as file:
            for _ in range(256):
                written += file.write(b"x" * 2**20)
    except OSError as error:
        return f"{written // 2**20} {error.errno}"
    return f"{written // 2**20}"


def fork_some(most: int, take_bytes: int = 0) -> str:
    """Start at most so many processes that sleep for a minute; return how many there were."""
    import os
    import time

    for count in range(most):
        try:
            if os.fork() == 0:
                taken = b"x" * take_bytes
                time.sleep(60)
                os._exit(len(taken) & 1)
        except OSError:
            return f"{count}"
    if take_bytes:
        time.sleep(60)
    return f"{most}"


def start_thread() -> str:
    import threading
    import time

    try:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError as error:
        return f"{error}"
    return "started"


def run_another_program() -> str:
    import os

    try:
        os.execv("/usr/bin/env", ["env"])
    except OSError as error:
        return type(error).__name__


def leave_shared_memory() -> str:
    import ctypes
    import os

    library = ctypes.CDLL(None, use_errno=True)
    private_key, owner_only = 0, 0o600
    if library.shmget(private_key, 4096, owner_only) == -1:
        return os.strerror(ctypes.get_errno())
    return "left"


def leave_daemons() -> str:
    """Leave three daemons, each in a session of its own; give their process numbers."""
    import os
    import signal
    import time

    reading, writing = os.pipe()
    for _ in range(3):
        if os.fork() == 0:
            if os.fork() == 0:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.write(writing, f"{os.getpid()} ".encode())
                time.sleep(60)
            os._exit(0)
        os.wait()
    numbers = b""
    while numbers.count(b" ") < 3:
        numbers += os.read(reading, 100)
    return numbers.decode()


def alive(numbers: str) -> str:
    """Give those of the processes that there are."""
    import os

    return " ".join(number for number in numbers.split() if os.path.exists(f"/proc/{number}"))


def take_memory() -> str:
    """Ask for 100 GiB, without touching them."""
    import mmap

    try:
        mmap.mmap(-1, 100 * 2**30).close()
    except OSError as error:
        return f"{error.errno}"
    return "taken"


def flood() -> str:
    """Write 32 MiB to every open file, and reply with 8 MiB."""
    import os

    for descriptor in (1, 2):
        for _ in range(32):
            os.write(descriptor, b"x" * 2**20)
    return "x" * 2**23


def wait_long() -> str:
    import time

    time.sleep(60)
    return "waited"


def trickle() -> str:
    """Write a reply of a million bytes, one after the other."""
    import os
    import struct
    import time

    reply = 0
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, struct.pack("!Q", 2**20))
            reply = descriptor
        except OSError:
            continue
    while True:
        os.write(reply, b" ")
        time.sleep(0.01)


def exit_at_once() -> str:
    import os

    os._exit(0)


def kill_the_pool() -> str:
    import os
    import signal

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):
        try:
            os.kill(os.getppid(), number)
        except OSError as error:
            return type(error).__name__
    return "killed"


def kill_everything() -> str:
    """Only where nothing but the pool can be seen."""
    import os
    import signal

    if os.getppid() == 1:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return "nothing to kill"
    return "killed"


def open_files() -> str:
    """List what is open, besides the folder that lists it, by what it is."""
    import os

    kinds = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            kinds.append(os.readlink(f"/proc/self/fd/{number}").partition(":")[0])
        except OSError:
            continue
    return " ".join(sorted(kinds))


def forge_into_everything(forged: str) -> str:
    """Write replies of one's own, framed as the pool does, wherever it can be written; and end."""
    import os
    import struct

    payload = forged.encode()
    for descriptor in range(256):
        for _ in range(2):
            try:
                os.write(descriptor, struct.pack("!Q", len(payload)) + payload)
            except OSError:
                continue
    os._exit(0)


def look_into_the_pool() -> str:
    """List the ways into the memory of the pool's process."""
    import ctypes
    import os

    ways = []
    for name in ("mem", "environ", "maps", "fd"):
        path = f"/proc/{os.getppid()}/{name}"
        try:
            if name == "fd":
                os.listdir(path)
            else:
                open(path).close()
        except OSError:
            continue
        ways.append(name)
    attach = 16
    if ctypes.CDLL(None).ptrace(attach, os.getppid(), 0, 0) == 0:
        ways.append("ptrace")
    return " ".join(ways)


def find_in_memory(reversed_text: str) -> str:
    """Count how often a text is in what this process has inherited from the pool."""
    import ctypes
    from pathlib import Path

    wanted = reversed_text.encode()[::-1]
    found = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, *rest = line.split()
        if rights.startswith("rw") and not rest[-1].startswith("[v"):
            first, last = (int(end, 16) for end in span.split("-"))
            found += ctypes.string_at(first, last - first).count(wanted)
    # One is the copy that this function holds itself.
    return f"{found - 1}"


def gain_rights() -> str:
    """List the rights that this process has or can get."""
    import ctypes
    import os
    from pathlib import Path

    gained = []
    own = os.getuid()
    for number in {0, 1000} - {own}:
        try:
            os.setuid(number)
            gained.append(f"uid {number}")
        except OSError:
            pass
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
    )
    if int(status["CapEff"], 16):
        gained.append("capabilities")
    if status["NoNewPrivs"] != "1":
        gained.append("new privileges")
    if ctypes.CDLL(None).mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0:
        gained.append("mount")
    return " ".join(gained)
