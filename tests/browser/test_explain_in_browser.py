"""The page that explains snapshots, without any server but its own, and without a network."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from accessibility import violations

from vramlab.allocator import CachingAllocator, DeviceMemory, snapshot
from vramlab.errors import OutOfDeviceMemory
from vramlab.units import GIB, MIB

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

MESSAGE = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a "
    "total capacity of 14.74 GiB of which 474.12 MiB is free. Process 1 has 14.27 GiB memory in "
    "use. Of the allocated memory 11.48 GiB is allocated by PyTorch, and 2.67 GiB is reserved by "
    "PyTorch but unallocated."
)
STARTS_MS = 60_000
LARGE_BYTES = 50_000_000


@pytest.fixture
def explain(site: str, page: Page) -> Iterator[Page]:
    """Open the page, and fail if it wants anything that is not on the site."""
    asked: list[str] = []

    def only_the_site(route: Route) -> None:
        asked.append(route.request.url)
        if route.request.url.startswith((site, "data:", "blob:")):
            route.continue_()
        else:
            route.abort()

    page.context.route("**/*", only_the_site)
    page.goto(f"{site}docs/explain.html")
    yield page
    assert [url for url in asked if not url.startswith((site, "data:", "blob:"))] == []


def frames(line: int) -> list[dict[str, Any]]:
    library = "/env/lib/python3.11/site-packages/torch/nn/modules/module.py"
    inside = [{"filename": library, "line": 1787 + n, "name": "_call_impl"} for n in range(12)]
    return [*inside, {"filename": "/home/me/train.py", "line": line, "name": "forward"}]


def training(allocator: CachingAllocator, steps: Iterator[int]) -> None:
    """Ten layers a step; every tenth step leaves 2 MiB behind, until no more fits."""
    stacks = [frames(line) for line in range(100, 120)]
    kept = []
    for step in steps:
        blocks = [allocator.malloc(2 * MIB + 512 * n, context=stacks[n]) for n in range(10)]
        for block in reversed(blocks):
            allocator.free(block, context=stacks[10])
        if step % 10 == 0:
            kept.append(allocator.malloc(2 * MIB, context=stacks[11]))


def made(path: Path, steps: Iterator[int], total_bytes: int) -> bytes:
    allocator = CachingAllocator(DeviceMemory(total_bytes))
    allocator.record_history()
    with suppress(OutOfDeviceMemory):
        training(allocator, steps)
    data = pickle.dumps(snapshot([allocator]))
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return data


def test_a_snapshot_is_explained(explain: Page, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle.gz"
    made(path, count(), 100 * MIB)
    explain.get_by_label("Drop a").set_input_files(path)
    report = explain.locator("#explain-report")
    report.get_by_text("cuda:0 ran out of memory").wait_for(timeout=STARTS_MS)
    assert "me/train.py:111 forward" in report.inner_text()
    explain.get_by_role("status").filter(has_text="Nothing was uploaded").wait_for()


def test_the_example_has_timelines_of_other_settings(explain: Page) -> None:
    explain.get_by_role("button", name="Show me an example").click()
    recorded = explain.get_by_role("application", name="cuda:0 as recorded: runs out of memory")
    recorded.wait_for(timeout=STARTS_MS)
    choice = explain.get_by_label("as recorded", exact=True)
    choice.focus()
    choice.press("ArrowDown")
    choice.page.keyboard.press("ArrowDown")
    name = "cuda:0 replayed with expandable_segments:True: fits"
    explain.get_by_role("application", name=name).wait_for(timeout=STARTS_MS)
    assert recorded.count() == 0


def test_a_message_is_explained(explain: Page) -> None:
    explain.get_by_label("Or paste").fill(MESSAGE)
    explain.get_by_role("button", name="Explain the message").press("Enter")
    explain.locator("#explain-report").get_by_text("rank3: GPU 0").wait_for(timeout=STARTS_MS)


def test_what_is_no_snapshot_is_refused_in_words(explain: Page, tmp_path: Path) -> None:
    path = tmp_path / "model.pickle"
    path.write_bytes(pickle.dumps(Path("weights")))
    explain.get_by_label("Drop a").set_input_files(path)
    status = explain.get_by_role("status").filter(has_text="model.pickle: it refers to pathlib")
    status.wait_for(timeout=STARTS_MS)
    assert "Traceback" not in explain.locator("#explain-status").inner_text()


def test_a_snapshot_of_50_mb_is_explained(explain: Page, tmp_path: Path) -> None:
    path = tmp_path / "large.pickle"
    made(path, iter(range(21_000)), 40 * GIB)
    assert path.stat().st_size > LARGE_BYTES
    explain.get_by_label("Drop a").set_input_files(path)
    report = explain.locator("#explain-report")
    report.get_by_text("cuda:0: peak allocated memory").wait_for(timeout=300_000)
    report.get_by_role("application", name="cuda:0 as recorded").wait_for(timeout=300_000)


def test_the_allocator_fragments_and_expandable_segments_help(explain: Page) -> None:
    run = explain.get_by_role("button", name="Run")
    run.click()
    # Two segments of 20 MiB, of which c and f use 12: 24 MiB more would need 64 of 60.
    explain.get_by_text("Out of memory.", exact=True).wait_for(timeout=STARTS_MS)
    explain.get_by_label("PYTORCH_CUDA_ALLOC_CONF").fill("expandable_segments:True")
    run.click()
    now = explain.locator("#play-now")
    now.filter(has_text="g = 24 MiB: 36 MiB allocated, 60 MiB reserved").wait_for()
    slider = explain.get_by_label("Step through")
    slider.focus()
    slider.press("Home")
    now.filter(has_text="After line 1, a = 6 MiB: 6 MiB allocated").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(explain: Page, axe: str, scheme: str) -> None:
    explain.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    explain.get_by_role("button", name="Run").click()
    explain.get_by_text("Out of memory.", exact=True).wait_for(timeout=STARTS_MS)
    explain.get_by_label("Or paste").fill(MESSAGE)
    explain.get_by_role("button", name="Explain the message").click()
    explain.locator("#explain-report").get_by_text("rank3: GPU 0").wait_for(timeout=STARTS_MS)
    assert violations(explain, axe) == []


def test_nothing_is_wider_than_a_phone(site: str, phone: Page) -> None:
    phone.goto(f"{site}docs/explain.html")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
