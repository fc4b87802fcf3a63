"""The workers: what they return, and what happens when one dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm_python import warm_children, warm_classroom

from vramlab_classroom.run.cluster import ClusterError, WorkerDied, Workers


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with warm_children(warm_classroom()), Workers(2) as workers:
        yield workers


def own_number() -> int:
    return os.getpid()


def divide(dividend: int, divisor: int) -> float:
    return dividend / divisor


def wait_then_answer(path: str, answer: str) -> str:
    """Say who works at it, and wait; a worker that follows a dead one does not wait."""
    first = not os.path.exists(path)
    Path(path).write_text(f"{os.getpid()}")
    if first:
        time.sleep(3600)
    return answer


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_work_comes_back_by_its_name(workers: Workers) -> None:
    assert workers.slots == 2
    for number in (1, 2, 4):
        workers.begin(number, divide, 8, number)
    assert workers.pending == 3
    assert dict(workers.next() for _ in range(3)) == {1: 8.0, 2: 4.0, 4: 2.0}
    assert workers.pending == 0


class Interrupted:
    """Is interrupted while it is finalized, where Python drops every exception."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)
        for _ in range(2):  # Python 3.11 calls the handler at the next jump back
            pass


def test_an_interrupt_that_python_drops_stops_the_run_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dropped: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: dropped.append(error.exc_type))
    before = signal.getsignal(signal.SIGINT)
    with Workers(1) as interrupted:
        interrupted.begin("half", divide, 8, 2)
        Interrupted()
        assert dropped == [KeyboardInterrupt]
        with pytest.raises(KeyboardInterrupt):
            interrupted.next()
        with pytest.raises(KeyboardInterrupt):
            interrupted.begin("third", divide, 9, 3)
    assert signal.getsignal(signal.SIGINT) == before


def test_what_a_dead_worker_was_doing_is_done_by_another(workers: Workers, tmp_path: Path) -> None:
    path = tmp_path / "who"
    workers.begin("late", wait_then_answer, f"{path}", "done")
    while not (path.exists() and path.read_text()):
        time.sleep(0.02)
    first = int(path.read_text())
    os.kill(first, signal.SIGKILL)
    assert workers.next() == ("late", "done")
    assert int(path.read_text()) != first


def test_work_that_kills_every_worker_is_given_up(
    workers: Workers, capfd: pytest.CaptureFixture[str]
) -> None:
    workers.begin("deadly", die)
    workers.begin("harmless", divide, 6, 2)
    results = dict(workers.next() for _ in range(2))
    assert isinstance(results["deadly"], WorkerDied)
    assert f"{results['deadly']}" == "3 workers died of it"
    assert results["harmless"] == 3.0
    assert capfd.readouterr() == ("", "")


def test_a_cluster_elsewhere_is_used_and_left_running_until_it_is_gone(tmp_path: Path) -> None:
    tests = Path(__file__).parents[2]
    path = os.pathsep.join([f"{tests.parent}", f"{tests / 'support'}"])
    settings = {**os.environ, "PYTHONPATH": path}
    port = _free_port()
    address = f"tcp://127.0.0.1:{port}"
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-dashboard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    programs = [
        subprocess.Popen([*command, *more], env=settings, **quiet)
        for command, more in (
            (scheduler, ["--host", "127.0.0.1", "--port", f"{port}"]),
            (worker, ["--nthreads", "1", "--no-nanny"]),
        )
    ]
    try:
        with Workers(address=address) as elsewhere:
            elsewhere.begin("who", own_number)
            assert elsewhere.next() == ("who", programs[1].pid)
        assert [program.poll() for program in programs] == [None, None]
        with Workers(address=address) as elsewhere:
            elsewhere.begin("late", time.sleep, 3600)
            elsewhere.begin("later", time.sleep, 3600)
            programs[0].kill()
            with pytest.raises(ClusterError, match="the cluster is gone"):
                elsewhere.next()
    finally:
        for program in programs:
            program.kill()
            program.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
