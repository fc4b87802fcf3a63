"""Orders travel as data, and limits only ever become lower."""

from __future__ import annotations

import resource

import pytest

from vramlab_classroom.sandbox.job_limits import JobSpec, Limits


def test_an_order_comes_back_as_it_went() -> None:
    limits = Limits(10, 60, 2**30, is_trusted=True, runs_torch=True, reply_bytes=7)
    order = JobSpec(limits, ("torch", "json"))
    assert JobSpec.from_data(order.as_data()) == order


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, int]]:
    """Note the limits that would be set, in a process that may open 32 files at most."""
    wanted: dict[int, tuple[int, int]] = {}
    ceilings = {resource.RLIMIT_NOFILE: 32}
    monkeypatch.setattr(
        resource, "getrlimit", lambda what: (0, ceilings.get(what, resource.RLIM_INFINITY))
    )
    monkeypatch.setattr(resource, "setrlimit", wanted.__setitem__)
    return wanted


def test_a_learners_job_gets_all_limits(applied: dict[int, tuple[int, int]]) -> None:
    Limits(10, 60, 2**30).apply()
    assert applied[resource.RLIMIT_CPU] == (10, 11)
    assert applied[resource.RLIMIT_FSIZE] == (0, 0)
    assert applied[resource.RLIMIT_NPROC] == (0, 0)
    assert applied[resource.RLIMIT_NOFILE] == (32, 32)  # not the 64 of the others


def test_torch_may_start_threads(applied: dict[int, tuple[int, int]]) -> None:
    Limits(10, 60, 2**30, runs_torch=True).apply()
    assert resource.RLIMIT_FSIZE in applied
    assert resource.RLIMIT_NPROC not in applied


def test_the_packages_own_code_may_write(applied: dict[int, tuple[int, int]]) -> None:
    Limits(10, 60, 2**30, is_trusted=True).apply()
    assert resource.RLIMIT_CPU in applied
    assert not {resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC} & set(applied)
