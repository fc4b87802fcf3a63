"""The to-do list of a new PyTorch: each step counts, and none ends the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks import new_torch
from benchmarks.new_torch import Findings, Ground, StepFailed, last_before, run_steps
from vramlab.errors import VramlabError
from vramlab.native import Build
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


def test_of_a_version_that_is_known_nothing_is_to_be_raised(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, names=Findings("nothing"))
    ground.version = f"{text(NEWEST)}.1"
    assert run_steps(ground, ["names"], ground.work / "page.md") == 0
    assert to_do((ground.work / "page.md").read_text()) == []


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


def test_ctrl_c_ends_what_a_step_has_started(tmp_path: Path) -> None:
    """As in a terminal: both processes get it, and the one that is waited for ignores it."""
    program = f"""
    import os
    from pathlib import Path
    from benchmarks import new_torch
    from benchmarks.new_torch import Ground, Findings

    SLEEP = "import signal, time; signal.signal(2, signal.SIG_IGN); print('on'); time.sleep(99)"

    def step(ground):
        new_torch._run(ground, "log", ["-c", SLEEP], os.environ)

    new_torch.STEPS = {{"tests": step}}
    new_torch.prepare = lambda ground, cudnn: None
    work = Path({str(tmp_path)!r})
    ground = Ground("9.9.0", "9.8.0", work)
    raise SystemExit(new_torch.run_steps(ground, ["tests"], work / "page.md"))
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        assert any(line.strip() == "on" for line in iter(process.stderr.readline, ""))
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
    assert process.returncode == 130
    assert rows((tmp_path / "page.md").read_text())["tests"][0] == "interrupted"


def test_a_process_that_fails_is_told_with_its_end(ground: Ground) -> None:
    with pytest.raises(StepFailed, match=r"(?s)ended with 3.*the reason"):
        new_torch._run(ground, "log", ["-c", "print('the reason'); exit(3)"], os.environ)
    assert (ground.work / "log.log").read_text() == "the reason\n"


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


def test_tests_that_cannot_be_begun_are_a_failure(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ground, "environment", lambda self: os.environ)
    ground.tests = ["--no-such-option"]
    with pytest.raises(StepFailed, match="no-such-option"):
        new_torch.tests(ground)


def test_what_differs_between_the_engines_is_told_in_bytes() -> None:
    def number(difference: int, known: str | None = None) -> dict[str, object]:
        found = {"stage": "step", "quantity": "peak", "recorded_bytes": 2048}
        return {**found, "difference_bytes": difference, "known": known}

    entries = [
        {"entry": "zoo/equal", "problem": None, "numbers": [number(0)]},
        {"entry": "zoo/known", "problem": None, "numbers": [number(512, "nccl-shelf")]},
        {"entry": "zoo/other", "problem": None, "numbers": [number(0), number(-512)]},
        {"entry": "zoo/refused", "problem": "no such op", "numbers": []},
    ]
    assert list(new_torch._differing("T4", entries)) == [
        "- T4, `zoo/other`: step, peak: 2,048 B native, -512 B portable",
        "- T4, `zoo/refused`: refused, or otherwise: no such op",
    ]


def test_operators_that_differ_are_listed(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [
        "W1126 something else: 1 of 2 differ?",
        "op cumsum: 3 of 36 differ",
        "    float32 small: forward: native [4, 4], portable [4]",
        "module Linear: the native engine's process ended with -11",
        "op {'entries': 1, 'calls': 36, 'equal calls': 33}",
    ]
    ground.build = Build(ground.work, f"{NEXT}+cu132", 13020, "cp311", ground.work, "", None)
    monkeypatch.setattr(new_torch, "_run", lambda *words: "\n".join(said))
    findings = new_torch.operators(ground)
    assert findings.summary == "1 entries differ"
    assert findings.to_do[:2] == [f"Operators: {said[3]}", f"Operators: {said[1]}"]
    assert findings.details.splitlines() == ["```text", *said[1:], "```"]
    monkeypatch.setattr(new_torch, "_run", lambda *words: "op {}")
    with pytest.raises(StepFailed, match="no operator ran"):
        new_torch.operators(ground)


def test_steps_that_need_the_native_engine_say_that_it_is_missing(ground: Ground) -> None:
    for step in (new_torch.engines, new_torch.operators, new_torch.setup):
        with pytest.raises(StepFailed, match="native engine could not be set up"):
            step(ground)
    with pytest.raises(StepFailed, match="wheel could not be fetched"):
        ground.environment()


@pytest.mark.parametrize(
    ("version", "expected"),
    [(NEXT, -1), (f"{NEXT}.dev20990101", -1), ("3.0.0", -1), (f"{text(NEWEST)}.0", -2)],
)
def test_it_is_compared_with_the_last_known_version_before(version: str, expected: int) -> None:
    assert last_before(version) == new_torch.releases()[expected]


def test_steps_are_chosen_by_name_and_run_in_their_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert new_torch._steps("tests,names") == ["names", "tests"]
    with pytest.raises(SystemExit):
        new_torch.main([NEXT, "--steps", "nothing"])
    assert "no such step: nothing" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        new_torch.main(["newest"])
    assert "'newest' is no version of PyTorch" in capsys.readouterr().err


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


def test_make_passes_what_it_is_given() -> None:
    words = ["make", "--dry-run", "torch", f"VERSION={NEXT}", "STEPS=names", "SOURCES=/some where"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"-m benchmarks.new_torch {NEXT} --steps names --sources '/some where'" in said
