"""The to-do list of a new PyTorch: each step counts, and none ends the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import new_torch
from benchmarks.new_torch import Findings, Ground, last_before, run_steps
from vramlab.errors import VramlabError
from vramlab.torch_versions import NEWEST, text

ROOT = Path(__file__).parents[2]
NEXT = f"{NEWEST[0]}.{NEWEST[1] + 1}.0"


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    monkeypatch.setattr(new_torch, "prepare", lambda ground, cudnn: "there is no such wheel")
    return Ground(NEXT, f"{text(NEWEST)}.0", tmp_path)


def give(monkeypatch: pytest.MonkeyPatch, **steps: object) -> None:
    """Replace the steps: by what each finds, or raises."""

    def step(found: object) -> object:
        def run(ground: Ground) -> Findings:
            """Try something."""
            if isinstance(found, BaseException):
                raise found
            assert isinstance(found, Findings)
            return found

        return run

    monkeypatch.setattr(new_torch, "STEPS", {name: step(found) for name, found in steps.items()})


def rows(page: str) -> dict[str, list[str]]:
    """The table of steps."""
    table = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {name: [part.strip() for part in rest] for name, *rest in table[1:]}


def to_do(page: str) -> list[str]:
    return [line[6:] for line in page.splitlines() if line.startswith("- [ ] ")]


def test_a_step_that_fails_is_listed_and_the_others_run(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(
        monkeypatch,
        setup=VramlabError("no build"),
        names=Findings("2 names", ["`torch._C.x` is missing"], "| a | b |"),
        sources=ZeroDivisionError("by zero"),
        tests=Findings("all passed"),
    )
    out = ground.work / "page.md"
    assert run_steps(ground, ["setup", "names", "sources"], out) == 1
    page = out.read_text()
    assert page.startswith(f"# PyTorch {NEXT}: what to do")
    found = rows(page)
    assert found["setup"][:2] == ["failed", "there is no such wheel"]
    assert found["names"][:2] == ["done", "2 names"]
    assert found["sources"][:2] == ["failed", "ZeroDivisionError: by zero"]
    assert found["tests"][0] == "not run"
    assert to_do(page)[3:] == [
        "Run the step setup: failed",
        "`torch._C.x` is missing",
        "Run the step sources: failed",
        "Run the step tests: not run",
    ]
    assert str((NEWEST[0], NEWEST[1] + 1)) in to_do(page)[0]  # NEWEST is to be raised
    assert "## Names\n\n| a | b |" in page
    assert "raise found" in page  # the traceback of what was not foreseen
    assert "[2/3] names: Try something." in capsys.readouterr().err


def test_ctrl_c_leaves_what_was_found(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    give(
        monkeypatch,
        names=Findings("found"),
        tests=KeyboardInterrupt(),
        engines=Findings("not reached"),
    )
    assert run_steps(ground, ["names", "tests", "engines"], ground.work / "page.md") == 130
    found = rows((ground.work / "page.md").read_text())
    assert [row[0] for row in found.values()] == ["done", "interrupted", "not run"]


def test_names_are_compared_with_the_version_before(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = {"missing": {}, "changed": [], "public names": ["a"], "unreviewed": []}
    old = {**common, "ops": {"aten::x.default": "x(a)", "aten::y.default": "y()"}}
    new = {
        **common,
        "missing": {"torch._C.z": "counts the GPUs"},
        "changed": ["torch._C.w takes (a, b)"],
        "ops": {"aten::x.default": "x(a, b)", "aten::new.default": "new()"},
        "public names": ["a", "b"],
        "unreviewed": ["aten::new.default"],
    }
    monkeypatch.setattr(new_torch.native, "set_up", lambda version, report: None)
    monkeypatch.setattr(new_torch.torch_on_stubs, "environment", lambda build: {})
    monkeypatch.setattr(Ground, "environment", lambda self: {})
    monkeypatch.setattr(
        new_torch,
        "_names_of",
        lambda ground, environment, what: {
            **(new if what == "new" else old),
            "c functions": ["_cuda_a", "_cuda_b"] if what == "new" else ["_cuda_a"],
        },
    )
    findings = new_torch.names(ground)
    assert findings.summary == "1 names missing, 1 with other arguments, 1 new ops"
    assert findings.to_do == [
        "`torch._C.z`, which counts the GPUs, is missing",
        "Arguments changed: torch._C.w takes (a, b)",
        "Answer or refuse the new names of torch.cuda: `b`",
        "Answer or hide the new C functions: `_cuda_b`",
        "Read the kernels of 1 new ops: `aten::new.default`",
        "Look at ops whose arguments changed: `aten::x.default`",
    ]
    assert "Ops that are gone (1): `aten::y.default`." in findings.details


def test_tests_that_fail_are_grouped_by_their_error(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ground.work / "test_some.py"
    file.write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('number', range(1000, 1003))\n"
        "def test_same(number): raise ValueError(f'at 0xabc: {number} B')\n"
        "def test_other(): assert 1 == 2\n"
        "def test_passes(): pass\n"
    )
    monkeypatch.setattr(Ground, "environment", lambda self: os.environ)
    ground.tests = [str(file), "-p", "no:cacheprovider"]
    findings = new_torch.tests(ground)
    assert findings.summary == "1 passed, 4 failed, 0 skipped"
    first, second = findings.to_do
    assert first == "3 tests: ValueError: at …: … B"
    assert second.startswith("1 tests: assert 1 == 2")
    assert findings.details.count("::test_same[") == 3


@pytest.mark.parametrize(
    ("version", "expected"),
    [(NEXT, -1), (f"{NEXT}.dev20990101", -1), ("3.0.0", -1), (f"{text(NEWEST)}.0", -2)],
)
def test_it_is_compared_with_the_last_known_version_before(version: str, expected: int) -> None:
    assert last_before(version) == new_torch.releases()[expected]


def test_this_pytorch_has_what_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "names.json"
    words = [sys.executable, "-m", "benchmarks.torch_names", str(file)]
    subprocess.run(words, cwd=ROOT, check=True)
    found = json.loads(file.read_text())
    assert (found["missing"], found["changed"]) == ({}, [])
    assert found["ops"]["aten::mm.default"] == "aten::mm(Tensor self, Tensor mat2) -> Tensor"
    assert "_cuda_memoryStats" in found["c functions"]
    assert "memory_allocated" in found["public names"]
    assert set(found["unreviewed"]) < set(found["ops"])
