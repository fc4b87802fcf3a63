"""A real browser, JupyterLab and the site, for the tests of this folder.

`make browser` runs them; `make test` leaves them out. They need Playwright (the extra `browser` of
pyproject.toml) and a Chromium or Chrome that is installed; where one is missing, they are skipped.
"""

from __future__ import annotations

import functools
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from accessibility import AXE
from running_lab import ROOT, RunningLab, copy_course, running_lab

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HERE = Path(__file__).parent
SITE = ROOT / "build" / "site" / "html"

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS = (
    "--no-sandbox",  # it opens nothing but our own pages, and root may not use the sandbox
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, so that the usual run leaves them out."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Return a Chromium without windows."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install -e '.[browser]'"
    )
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        pytest.skip(f"no browser is installed: none of {', '.join(_PROGRAMS)} is on the PATH")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Return a new page on a desktop, with cookies of its own."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    """Return a new page on a phone."""
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True
    )
    yield context.new_page()
    context.close()


@pytest.fixture(scope="session")
def lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Return a JupyterLab that `make lab` has started, on a copy of the course."""
    folder = tmp_path_factory.mktemp("lab")
    with running_lab(copy_course(folder / "course"), folder / "settings") as lab:
        yield lab


@pytest.fixture(scope="session")
def site(browser: Browser) -> Iterator[str]:
    """Return the address of the site that `make site` has built."""
    if not (SITE / "index.html").is_file():
        pytest.skip("the site is not built: make site")
    handler = functools.partial(_Quiet, directory=str(SITE))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing of every file that is fetched."""


@pytest.fixture(scope="session")
def axe() -> str:
    """Return the script of axe, which checks pages for accessibility."""
    if not AXE.is_file():
        pytest.skip("axe-core is not there: make browser fetches it")
    return AXE.read_text(encoding="utf-8")
