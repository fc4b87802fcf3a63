"""Which changes of the package make verdicts void."""

from __future__ import annotations

import sys
from importlib import invalidate_caches
from pathlib import Path

import pytest

from vramlab_classroom.run import sources
from vramlab_classroom.run.sources import digest_of_code

SOURCE = '''"""Measures."""

import vramlab.inner.pages


def measure(size):
    """Give bytes."""
    from vramlab.rules import ROUND  # of the kernel

    return size * ROUND
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in this one's place, and a task that uses it."""
    package = tmp_path / "vramlab"
    (package / "inner").mkdir(parents=True)
    for name, source in {
        "__init__.py": "",
        "inner/__init__.py": "",
        "inner/pages.py": "PAGE = 512",
        "rules.py": "ROUND = 2",
        "reports.py": "WIDTH = 100",
        "gpus.toml": "[T4]",
    }.items():
        (package / name).write_text(source)
    (tmp_path / "task_of_a_test.py").write_text(SOURCE)
    monkeypatch.setattr(sources, "judging_packages", lambda: {"vramlab": package})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "task_of_a_test", raising=False)
    invalidate_caches()
    return package


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("../task_of_a_test.py", "size * ROUND", "ROUND"),
        ("rules.py", "2", "3"),
        ("inner/pages.py", "512", "1024"),
        ("inner/__init__.py", "", "import os"),
        ("gpus.toml", "T4", "L4"),
    ],
)
def test_code_and_data_that_decide_count(package: Path, name: str, old: str, new: str) -> None:
    before = digest_of_code(["task_of_a_test"])
    path = package / name
    path.write_text(path.read_text().replace(old, new))
    assert digest_of_code(["task_of_a_test"]) != before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("../task_of_a_test.py", "Give bytes.", "Give the bytes."),
        ("../task_of_a_test.py", "  # of the kernel", ""),
        ("../task_of_a_test.py", "size * ROUND", "(size * ROUND)"),
        ("rules.py", "2", '2\n"""What it is."""'),
        ("reports.py", "100", "80"),
    ],
)
def test_comments_and_other_modules_do_not(package: Path, name: str, old: str, new: str) -> None:
    before = digest_of_code(["task_of_a_test"])
    path = package / name
    changed = path.read_text().replace(old, new)
    assert changed != path.read_text()
    path.write_text(changed)
    assert digest_of_code(["task_of_a_test"]) == before


def test_the_virtual_gpu_is_among_what_judges_and_reports_are_not() -> None:
    found = sources._closure(["vramlab_classroom.judge.judge", "vramlab.gpu"])
    assert {"vramlab_classroom.judge.restricted", "vramlab.cuda_rules.sizes"} & set(found) == {
        "vramlab.cuda_rules.sizes"
    }
    found |= sources._closure(["vramlab_classroom.judge.job_server"])
    assert "vramlab_classroom.judge.restricted" in found
    assert "vramlab_classroom.reports.class_report" not in found
    assert all(path.is_file() for path in found.values())
