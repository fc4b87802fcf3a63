"""The committed results and pages are what they would be if they were made now."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import pages
from benchmarks.estimates.cases import published_cases
from benchmarks.estimates.estimators import virtual_gpu
from benchmarks.estimates.results import RESULTS_FILE, ROOT, Results, fingerprints
from benchmarks.parts import front_page
from vramlab.native import builds
from vramlab.native.builds import Build
from vramlab.native.choice import choose, default_engine

pytestmark = pytest.mark.long

RESULTS = Results.from_json(RESULTS_FILE.read_text(encoding="utf-8"))
VIRTUAL = "vramlab's virtual GPU"


def test_pages_are_up_to_date() -> None:
    assert pages.stale() == []  # else: python -m benchmarks.pages


def test_results_are_of_the_cases_there_are() -> None:
    published = [one.case for one in RESULTS.comparisons if one.case.kind == "document"]
    assert published == list(published_cases())


def test_results_are_of_the_recordings_there_are() -> None:
    assert RESULTS.recordings == fingerprints()  # else: python -m benchmarks.accuracy --write


def test_the_virtual_gpu_still_says_what_the_results_say() -> None:
    quick = [case for case in published_cases() if not case.program.startswith("bert")]
    written = {one.case.name: one.estimates_bytes[VIRTUAL] for one in RESULTS.comparisons}
    now = virtual_gpu(quick).estimates_bytes
    assert now == {case.name: written[case.name] for case in quick}


def test_every_part_of_a_page_is_made_by_somebody_and_used_somewhere() -> None:
    used = {
        part["name"]
        for page in pages.PAGES
        for part in pages._PART.finditer(page.read_text(encoding="utf-8"))
    }
    assert used == pages.parts(RESULTS).keys()


def test_pages_do_not_depend_on_what_is_set_up_or_chosen_where_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set_up_an_outdated_build(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("VRAMLAB_ENGINE", raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert "the native one cannot be updated" in choose(default_engine()).why  # reports would tell
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    made = {"report": front_page.report, "program": front_page.program}
    front_page.report.cache_clear()
    front_page.timeline.cache_clear()
    parts = [part[0] for part in pages._PART.finditer(readme) if part["name"] in made]
    assert [pages.filled(part, made) for part in parts] == parts


def _set_up_an_outdated_build(cache: Path) -> None:
    """Write what an earlier vramlab's `native setup` of the installed PyTorch leaves behind."""
    release = RESULTS.versions["torch"]
    folder = cache / "vramlab" / "native" / "builds" / "outdated"
    folder.mkdir(parents=True)
    site = cache / "site"
    builds.write(
        Build(folder, f"{release}+cu130", 13000, builds.python_tag(), site, "of old", None), folder
    )
