"""Workers of a cluster that are not as this machine would have them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from vramlab_classroom.run import worker
from vramlab_classroom.run.worker import MarkingConditions, MarkingWork, OtherSandboxError, mark
from vramlab_classroom.sandbox.bubblewrap import LimitsOnly, SandboxError

CONDITIONS = MarkingConditions("the seed of the tests", LimitsOnly(), (), {})
WORK = MarkingWork("ada", "02_pages_and_blocks", b"", ())


def test_a_worker_without_the_sandbox_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LimitsOnly) -> None:
        raise SandboxError("the sandbox limits does not work here: no python")

    monkeypatch.setattr(LimitsOnly, "try_out", refuse)
    tried_anew = worker._try_out.__wrapped__  # it may have worked for an earlier test
    monkeypatch.setattr(worker, "_try_out", tried_anew)
    with pytest.raises(OtherSandboxError, match="on a worker, the sandbox limits does not work"):
        mark(WORK, replace(CONDITIONS, hidden=(tmp_path,)))  # no pool was made for these


def test_threads_of_a_worker_use_its_pool_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[int] = []

    class Watched:
        def call(self, *words: str, **named: object) -> dict[str, str]:
            inside.append(1)
            assert len(inside) == 1
            time.sleep(0.02)
            inside.pop()
            return {"problem": "seen"}

    monkeypatch.setattr(worker, "_pool", lambda sandbox, hidden: Watched())
    with ThreadPoolExecutor(4) as threads:
        marked = list(threads.map(lambda _: mark(WORK, CONDITIONS), range(8)))
    assert [each["problem"] for each in marked] == ["seen"] * 8
