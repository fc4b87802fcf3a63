"""Which of PyTorch's files are cited, and what is said of them when they change."""

from __future__ import annotations

import urllib.error
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cited_sources
from benchmarks.cited_sources import ROOT, Citation, Source, citations, citations_in, compare

CODE = '''\
"""Rules.

Source: `first_rule` and `ns::second` in aten/src/ATen/native/cuda/Sort.cpp and SortStable.cu,
PyTorch 2.13. Nothing else.
"""

# Another one: torch/optim/adam.py
RULE = Rule(
    source="aten/src/ATen/native/ReduceOps.cpp and cuda/ScanUtils.cuh, "
    "PyTorch 2.14",
    other="aten/src/ATen/native/cuda/Normalization.cu and .cuh",
)
'''


def found(text: str) -> list[tuple[str, int, str | None, tuple[str, ...]]]:
    """The first path, line, version and names of each citation."""
    return [
        (one.paths[0], int(one.at.rpartition(":")[2]), one.version, one.symbols)
        for one in citations_in(text, "file.py")
    ]


def test_paths_versions_and_names_are_read_across_lines() -> None:
    native = "aten/src/ATen/native"
    assert found(CODE) == [
        (f"{native}/cuda/Sort.cpp", 3, "2.13", ("first_rule", "ns::second")),
        (f"{native}/cuda/SortStable.cu", 3, "2.13", ("first_rule", "ns::second")),
        ("torch/optim/adam.py", 7, "2.14", ()),
        (f"{native}/ReduceOps.cpp", 9, "2.14", ()),
        (f"{native}/cuda/ScanUtils.cuh", 9, "2.14", ()),
        (f"{native}/cuda/Normalization.cu", 11, None, ()),
        (f"{native}/cuda/Normalization.cuh", 11, None, ()),
    ]


def test_the_rules_of_this_repository_cite_what_they_say() -> None:
    every = list(citations())
    assert len(every) > 300
    of_caching = [one for one in every if one.paths == ("c10/cuda/CUDACachingAllocator.cpp",)]
    assert any(one.at.startswith("vramlab/allocator/caching.py:") for one in of_caching)
    for one in every:
        file, _, line = one.at.rpartition(":")
        assert len((ROOT / file).read_text().splitlines()) >= int(line)


@pytest.fixture
def versions(tmp_path: Path) -> tuple[Source, Source]:
    """Two checkouts; the newer one has a wheel, too."""
    texts = {
        "old": {
            "c10/a.cpp": "\n".join(["void first() {", "  take(1);", "}"]),
            "c10/b.h": "same",
            "c10/gone.cpp": "x",
            "aten/src/ATen/cuda/c.h": "int one = 1;\n" + "\n" * 100 + "void far_away();",
        },
        "new": {
            "c10/a.cpp": "\n".join(["void first() {", "  take(2);", "}"]),
            "c10/b.h": "same",
        },
        "site": {"torch/include/ATen/cuda/c.h": "int one = 2;\n" + "\n" * 100 + "void far_away();"},
    }
    for folder, files in texts.items():
        for name, text in files.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return (
        Source("2.15.0", "v2.15.0", checkout=tmp_path / "old"),
        Source("2.16.0", "v2.16.0", site=tmp_path / "site", checkout=tmp_path / "new"),
    )


def cite(path: str, *symbols: str) -> Citation:
    return Citation((path,), "vramlab/rule.py:1", "2.15", symbols)


def test_files_that_changed_come_with_the_cited_names_nearby(
    versions: tuple[Source, Source],
) -> None:
    cited = [
        cite("aten/src/ATen/cuda/c.h", "far_away"),
        cite("c10/b.h"),
        cite("c10/a.cpp", "ns::first", "second"),
        cite("c10/a.cpp"),
        cite("c10/gone.cpp"),
        cite("c10/never.cpp"),
    ]
    changes = compare(cited, *versions, network=False)
    first, second = changes.changed
    assert (first.path, first.added, first.removed) == ("c10/a.cpp", 1, 1)
    assert first.touched == ["ns::first"]
    assert len(first.citations) == 2
    assert "-  take(1);\n+  take(2);" in first.diff
    assert (second.path, second.touched) == ("aten/src/ATen/cuda/c.h", [])  # from the wheel
    assert changes.same == ["c10/b.h"]
    assert [one.path for one in changes.gone] == ["c10/gone.cpp"]
    assert changes.not_obtained == ["c10/never.cpp"]


def test_without_a_network_nothing_is_taken_for_gone(
    versions: tuple[Source, Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(address: str, timeout: float) -> Any:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(cited_sources.urllib.request, "urlopen", fail)
    old, _ = versions
    changes = compare([cite("c10/gone.cpp")], old, Source("2.16.0", "v2.16.0"))
    assert (changes.gone, changes.not_obtained) == ([], ["c10/gone.cpp"])
