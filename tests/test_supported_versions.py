"""The Pythons and PyTorches that are promised: the same everywhere, and each is tried at a push."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from benchmarks.new_torch import from_noxfile
from vramlab.torch_versions import NEWEST, OLDEST

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PYTHONS = re.findall(
    r"^Programming Language :: Python :: (\d\.\d+)$", "\n".join(PROJECT["classifiers"]), re.M
)


def steps_of(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def matrix() -> dict[str, Any]:
    """The job that tries them."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    job: dict[str, Any] = workflow["jobs"]["matrix"]
    return job


# ---- Promised ----


def test_pythons_follow_each_other_from_the_one_that_pip_asks_for() -> None:
    minors = [Version(python).minor for python in PYTHONS]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_make_takes_these_pythons_and_prefers_the_newest() -> None:
    script = (ROOT / ".ci" / "make-environment").read_text()
    first, last = (f"({python.replace('.', ', ')})" for python in (PYTHONS[0], PYTHONS[-1]))
    assert f"{first} <= sys.version_info[:2] <= {last}" in script
    assert f"vramlab needs Python {PYTHONS[0]} to {PYTHONS[-1]};" in script
    newest_first = " ".join(f"python{python}" for python in reversed(PYTHONS))
    assert f"${{PYTHON:-{newest_first} python3 python}}" in script


def test_there_is_one_torch_of_each_minor_version_that_is_known() -> None:
    versions = [Version(text) for text in from_noxfile("TORCHES")]
    minors = [(version.major, version.minor) for version in versions]
    assert minors == [(2, minor) for minor in range(OLDEST[1], NEWEST[1] + 1)]
    assert (OLDEST[0], NEWEST[0]) == (2, 2)


def test_pip_takes_them_and_leaves_a_newer_one_alone() -> None:
    needed = map(Requirement, PROJECT["dependencies"])
    (torch,) = (each.specifier for each in needed if each.name == "torch")
    assert torch == SpecifierSet(f">={OLDEST[0]}.{OLDEST[1]}")
    assert all(torch.contains(version) for version in (*from_noxfile("TORCHES"), "2.99.0", "3.0"))
    page = " ".join((ROOT / "docs" / "install.md").read_text().split())
    assert f"keeps your PyTorch if it is {OLDEST[0]}.{OLDEST[1]} or newer" in page


# ---- Tried ----


def test_each_is_tried_at_a_push_on_both_systems() -> None:
    tried = matrix()["strategy"]["matrix"]["at"]
    nightly = from_noxfile("NIGHTLY")
    (locked,) = re.findall(r"^torch==(.+)$", (ROOT / "requirements.txt").read_text(), re.M)
    # .ci/run tries the lock's PyTorch on the lock's Python.
    pairs = {(at["python"], at["torch"]) for at in tried} | {(PYTHONS[0], locked)}
    torches = [*from_noxfile("TORCHES"), nightly]
    assert pairs == {
        *((PYTHONS[0], torch) for torch in torches[:-1]),
        *((python, torches[-2]) for python in PYTHONS),
        (PYTHONS[-1], nightly),
    }
    assert {at["os"] for at in tried} == {"ubuntu-latest", "macos-latest"}
    on_macs = {at["python"] for at in tried if at["os"] == "macos-latest"}
    assert on_macs == {PYTHONS[0], PYTHONS[-1]}
    assert matrix()["continue-on-error"] == "${{ matrix.at.torch == '" + nightly + "' }}"


def test_shards_are_the_whole() -> None:
    shards = matrix()["strategy"]["matrix"]["shard"]
    (run,) = (step["run"] for step in matrix()["steps"] if "nox --session" in step.get("run", ""))
    (splits,) = re.findall(r'-- --splits (\d+) --group "\$SHARD"$', run)
    assert shards == list(range(1, int(splits) + 1))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_sessions_that_workflows_call_are_in_the_noxfile(path: Path) -> None:
    functions = {
        node.name
        for node in ast.parse((ROOT / "noxfile.py").read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    commands = [step.get("run", "") for step in steps_of(yaml.safe_load(path.read_text()))]
    called = re.findall(r"nox --session ([a-z ]+)", "\n".join(commands))
    if '--session "$SESSION"' in "\n".join(commands):
        called.append(matrix()["env"]["SESSION"].partition("(")[0])
    assert {name for names in called for name in names.split()} <= functions


# ---- By whom ----


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_to_a_commit_and_name_its_version(path: Path) -> None:
    used = re.findall(r"uses: (.+)$", path.read_text(), re.M)
    assert used
    for action in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_read_and_no_more_but_where_they_publish(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in workflow["jobs"].items():
        more = {what for what, how in job.get("permissions", {}).items() if how != "read"}
        assert not more or name == "publish", name


def test_what_is_published_was_built_in_another_job_and_needs_no_password() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert build["permissions"] == {"contents": "read"}
    assert publish["environment"]["name"] == "pypi"
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert not any("run" in step for step in publish["steps"])
