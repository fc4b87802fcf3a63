"""pytest's hooks: a test with `@pytest.mark.vram(...)` runs on a virtual GPU and is measured.

The GPU is attached before the test's own fixtures are set up and taken away after them. What they
allocate counts. A fixture that several tests share keeps tensors on the GPU of the first of them,
so models are built in fixtures of one test. The plugin imports torch only when a test needs it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from vramlab import catalogue
from vramlab.errors import VramlabError

if TYPE_CHECKING:
    from vramlab.report.measurement import Measurement
    from vramlab.report.summary import DeviceUse, Summary
    from vramlab.testing.limits import Request

MARK = "vram"

_REQUEST: pytest.StashKey[Request] = pytest.StashKey()
_MEASUREMENT: pytest.StashKey[Measurement] = pytest.StashKey()

Wrapper = Generator[None, Any, Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--vram-update`."""
    parser.getgroup("vramlab").addoption(
        "--vram-update",
        action="store_true",
        help="update the golden files of tests marked with pytest.mark.vram",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(gpu='A100-40GB', count=1, peak='<= 12 GiB', reserved=..., needed=...): run on a "
        "virtual GPU and check its memory against these limits, or without limits against the "
        "golden file that --vram-update writes",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse marks that ask for what cannot be, before anything runs.

    Raises:
        pytest.UsageError: there is one.
    """
    for item in items:
        mark = item.get_closest_marker(MARK)
        if mark is not None:
            from vramlab.testing.limits import Request

            try:
                catalogue.find(Request.of(mark.args, mark.kwargs).gpu["name"])
            except VramlabError as error:
                raise pytest.UsageError(f"{item.nodeid}: {error}") from None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Wrapper:
    """Attach the GPU that the mark asks for."""
    mark = item.get_closest_marker(MARK)
    if mark is not None:
        from vramlab.report.measurement import Measurement
        from vramlab.testing.limits import Request

        request = Request.of(mark.args, mark.kwargs)
        measurement = Measurement(item.nodeid, request.gpu, str(item.config.rootpath))
        measurement.begin()
        item.stash[_REQUEST], item.stash[_MEASUREMENT] = request, measurement
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Wrapper:
    """Run the test, and fail it if it needs more than it may."""
    result = yield
    if (measurement := item.stash.get(_MEASUREMENT, None)) is not None:
        summary = measurement.summary()
        complaint = _complaint(item, item.stash[_REQUEST], summary)
        if complaint:
            pytest.fail(complaint, pytrace=False)
    return result


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Wrapper:
    """Take the GPU away."""
    try:
        return (yield)
    finally:
        if (measurement := item.stash.get(_MEASUREMENT, None)) is not None:
            measurement.end()
            del item.stash[_MEASUREMENT]


def _complaint(item: pytest.Item, request: Request, summary: Summary) -> str:
    """Return what is wrong with the memory; empty: nothing."""
    if not any(device.context_bytes for device in summary.devices):
        return "The test put nothing on a cuda device, so there is no memory to check."
    if not request.limits:
        return _against_golden(item, summary)
    broken = [
        f"cuda:{device.index}: {limit} failed: it is {_figure(device, limit.what):,} bytes"
        for device in summary.devices
        for limit in request.limits
        if device.context_bytes and not limit.holds(_figure(device, limit.what))
    ]
    unsure = [
        f"{limit} is uncertain ({summary.outcome}), because {reason.text}"
        for limit in request.limits
        for reason in summary.reasons
        if limit.comparison[0] in ("=", ">" if reason.at_most else "<")
    ]
    return "\n".join([*broken, *unsure, "", _report(summary)]) if broken or unsure else ""


def _figure(device: DeviceUse, what: str) -> int:
    return {
        "peak": device.peak_allocated_bytes,
        "reserved": device.peak_reserved_bytes,
        "needed": device.needed_bytes,
    }[what]


def _against_golden(item: pytest.Item, summary: Summary) -> str:
    from vramlab.report.showing.difference import compare_reports, read_report
    from vramlab.report.showing.difference_text import as_text
    from vramlab.testing.golden import as_golden, golden_path, write_golden

    path = golden_path(item.path, item.nodeid.partition("::")[2])
    if item.config.getoption("--vram-update"):
        write_golden(path, summary)
        return ""
    if not path.exists():
        return f"missing golden file {path}: create it with pytest --vram-update and commit it"
    difference = compare_reports(read_report(path), as_golden(summary))
    sizes_changed = any(device.sizes_changed for device in difference.devices)
    if not (sizes_changed or difference.new_reasons):
        return ""  # a line that moved from one function to another is no news
    advice = f"If the change is intended: pytest --vram-update {item.nodeid}"
    return "\n\n".join([f"The memory differs from {path}.", as_text(difference), advice])


def _report(summary: Summary) -> str:
    from vramlab.report.showing.text import as_text

    # `fits` says no more than the bounds, and reads of values are no news in a test.
    return as_text(replace(summary, value_reads={}))
