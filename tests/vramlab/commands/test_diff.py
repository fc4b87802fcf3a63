"""`vramlab diff`: what has grown between two reports, and the action that comments it."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_blocks import environment

from vramlab.cli import main
from vramlab.report.showing.difference import compare_reports
from vramlab.units import MIB

ROOT = Path(__file__).parents[3]


def line(file: str, number: int, text: str, size_bytes: int) -> dict[str, Any]:
    frame = {"filename": file, "line": number, "function": "train"}
    return {"line": frame, "text": text, "size_bytes": size_bytes}


OLD: dict[str, Any] = {
    "format": 1,
    "program": "train.py",
    "folder": "/before",
    "fits": True,
    "error": None,
    "gpu": "T4",
    "gpu_count": 1,
    "engine": "portable",
    "torch_version": "2.13",
    "devices": [
        {
            "index": 0,
            "context_bytes": 100 * MIB,
            "needed_bytes": 400 * MIB,
            "peak_reserved_bytes": 300 * MIB,
            "peak_allocated_bytes": 280 * MIB,
            "category_bytes": {"parameters": 80 * MIB, "activations": 200 * MIB},
            "lines": [
                line("/before/train.py", 7, "model = Net()", 80 * MIB),
                line("/before/train.py", 9, "loss = model(x)", 200 * MIB),
            ],
        }
    ],
}


def grown() -> dict[str, Any]:
    """The same program a line further down, elsewhere; its activations are 8 MiB more."""
    new = copy.deepcopy(OLD)
    new["folder"] = "/now"
    (device,) = new["devices"]
    for field in ("needed_bytes", "peak_reserved_bytes", "peak_allocated_bytes"):
        device[field] += 8 * MIB
    device["category_bytes"]["activations"] += 8 * MIB
    device["lines"] = [
        line("/now/train.py", 8, "model = Net()", 80 * MIB),
        line("/now/train.py", 10, "loss = model(x)", 208 * MIB),
    ]
    return new


def written(folder: Path, name: str, report: Any) -> str:
    path = folder / name
    path.write_text(json.dumps(report), encoding="utf-8")
    return str(path)


def test_what_has_grown_is_told_by_category_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = written(tmp_path, "old.json", OLD), written(tmp_path, "new.json", grown())
    assert main(["diff", *files]) == 1
    out = capsys.readouterr().out
    # 8 of 400 MiB
    assert out.startswith("cuda:0 needs 8.00 MiB more (2.00%): 408.00 MiB instead of 400.00 MiB.\n")
    rows = [row.split() for row in out.splitlines()]
    assert ["parameters", "80.00", "80.00", "equal"] in rows
    assert ["activations", "200.00", "208.00", "+8.00"] in rows
    changed = out.partition("Lines that allocate")[2]
    assert ["train.py", "train", "200.00", "208.00", "+8.00"] in rows
    assert "loss = model(x)" in changed
    assert "model = Net()" not in changed  # it has only moved


@pytest.mark.parametrize(
    ("allowed", "status"), [("8 MiB", 0), ("7 MiB", 1), ("2%", 0), ("1.9%", 1)]
)
def test_some_growth_can_be_allowed(
    allowed: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = written(tmp_path, "old.json", OLD), written(tmp_path, "new.json", grown())
    assert main(["diff", "--allow", allowed, *files]) == status
    capsys.readouterr()
    assert main(["diff", "--json", *files[::-1]]) == 0  # less is welcome
    assert json.loads(capsys.readouterr().out)["grew"] is False


def with_gpus(*needed_bytes: int) -> dict[str, Any]:
    """A report of a program that needs so much on its GPUs; 0: it did not use that one."""
    report = copy.deepcopy(OLD)
    (device,) = report["devices"]
    report["devices"] = [
        {**device, "index": index, "context_bytes": min(needed, MIB), "needed_bytes": needed}
        for index, needed in enumerate(needed_bytes)
    ]
    return report


@pytest.mark.parametrize(
    ("old", "new", "growth_bytes"),
    [
        ((400 * MIB, 0), (400 * MIB, 40 * MIB), 40 * MIB),
        ((10 * MIB, 10 * MIB), (0, 100 * MIB), 90 * MIB),
        ((400 * MIB,), (400 * MIB, 7 * MIB), 7 * MIB),
        ((0, 400 * MIB), (400 * MIB, 0), 400 * MIB),
    ],
)
def test_gpus_are_compared_by_index(
    old: tuple[int, ...],
    new: tuple[int, ...],
    growth_bytes: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [
        written(tmp_path, f"{name}.json", with_gpus(*needed))
        for name, needed in (("old", old), ("new", new))
    ]
    difference = compare_reports(with_gpus(*old), with_gpus(*new))
    assert difference.growth_bytes == growth_bytes
    assert main(["diff", *files]) == 1
    assert "note: GPUs used: cuda:" in capsys.readouterr().out
    assert main(["diff", *files, "--allow", f"{growth_bytes}"]) == 0


@pytest.mark.parametrize("text", ["-1%", "nan%", "inf%", "x%", "12 GB", ""])
def test_what_is_no_growth_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, "old.json", OLD)
    with pytest.raises(SystemExit):
        main(["diff", f"--allow={text}", file, file])
    assert "--allow: " in capsys.readouterr().err


def test_what_a_run_does_not_know_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = [{"text": "train.py:12 (while t < 1:) decides", "at_most": False}]
    new = {**copy.deepcopy(OLD), "fits": None, "outcome": "at least", "reasons": reasons}
    files = written(tmp_path, "old.json", OLD), written(tmp_path, "new.json", new)
    assert main(["diff", *files]) == 0
    out = capsys.readouterr().out
    assert "note: the later run is uncertain (at least), because train.py:12 (while t < 1:)" in out
    assert compare_reports(OLD, new).new_reasons == (reasons[0]["text"],)
    moved = {**new, "reasons": [{"text": "train.py:13 (while t < 1:) decides"}]}
    assert compare_reports(new, moved).new_reasons == ()


def test_other_conditions_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = {**copy.deepcopy(OLD), "gpu": "L4", "fits": False, "error": "OutOfMemoryError: CUDA"}
    files = written(tmp_path, "old.json", OLD), written(tmp_path, "new.json", new)
    assert main(["diff", "--allow", "1 GiB", *files]) == 1
    out = capsys.readouterr().out
    assert out.startswith("It no longer fits.\n")
    assert "note: GPU: T4 before, L4 now" in out
    assert "note: the later run ran out of memory" in out


def test_the_action_runs_both_commits_and_writes_a_comment(tmp_path: Path) -> None:
    """Its shell runs here, with a `vramlab run` that copies what the commit has as report.json."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    install, _, run, comment, last = action["runs"]["steps"]
    assert install["run"] == 'python -m pip install --quiet "$ACTION"'
    programs = tmp_path / "bin"
    programs.mkdir()
    stubs = {
        "python": f'if [ "$1 $2 $3" = "-m vramlab run" ]; then echo "$@" >> "$LOG"; cp report.json '
        f'"$9"; else exec {sys.executable} "$@"; fi',
        "gh": 'case "$*" in *--jq*) echo 71;; *) echo "$@" >> "$LOG";; esac',
    }
    for name, body in stubs.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    repository, temporary = tmp_path / "repository", tmp_path / "temporary"
    repository.mkdir()
    temporary.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(repository)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    for report in (OLD, grown()):
        written(repository, "report.json", report)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", "report"], check=True)
    log, output = tmp_path / "log", tmp_path / "output"
    settings = {
        **environment(),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(temporary),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "LOG": str(log),
        "SCRIPT": "train.py --name 'two words; $(touch hacked)'",
        "GPU": "T4",
        "STEPS": "2",
        "ALLOW": "0",
        "BASE": "HEAD~1",
        "REPOSITORY": "someone/something",
        "NUMBER": "5",
    }
    for step in (run, comment):
        assert set(step["env"]) <= {*settings, "GH_TOKEN"}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        ran = subprocess.run(command, cwd=repository, env=settings, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
    ran_here, ran_there, told = log.read_text().splitlines()
    assert ran_here.endswith("new.json train.py --name two words; $(touch hacked)")
    assert "old.json train.py" in ran_there
    body = (temporary / "vramlab" / "body.md").read_text(encoding="utf-8")
    assert "cuda:0 needs 8.00 MiB more (2.00%)" in body
    assert told == (
        "api --method PATCH repos/someone/something/issues/comments/71 -F "
        f"body=@{temporary}/vramlab/body.md"
    )
    assert "status=1" in output.read_text().splitlines()  # what the last step ends with
    assert last["run"] == 'exit "$STATUS"'
    assert not (repository / "hacked").exists()


def test_the_action_explains_snapshots_in_the_summary(tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    explain = action["runs"]["steps"][1]
    message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a "
    message += "total capacity of 14.74 GiB of which 474.12 MiB is free."
    (tmp_path / "a log").write_text(message)
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", explain["run"]]
    settings = {
        **environment(),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "SNAPSHOT": "a log\n\n",
    }
    subprocess.run(command, cwd=tmp_path, env=settings, check=True)
    lines = (tmp_path / "summary.md").read_text().splitlines()
    assert lines[1] == "    a log: 1 out-of-memory message"
    assert {line[:4] for line in lines if line} == {"    "}
    settings["SNAPSHOT"] = "missing"
    assert subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True).returncode == 2
