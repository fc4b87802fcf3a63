"""The environment: one lock, repeated for conda; a message names what a machine lacks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import vramlab

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "vramlab": ".",
    "vramlab-classroom": "packages/vramlab-classroom",
    "vramlab-course": "packages/vramlab-course",
}
PROJECT_FILES = [f"{folder}/pyproject.toml" for folder in FOLDERS.values()]
EDITABLE = [f"--editable {folder}" for folder in FOLDERS.values()]
PROJECTS = {
    name: tomllib.loads((ROOT / folder / "pyproject.toml").read_text())
    for name, folder in FOLDERS.items()
}


def lock_lines() -> list[str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_lock_pins_exact_public_versions_with_torch_first() -> None:
    lines = lock_lines()
    assert lines[0].startswith("torch==")
    for line in lines:
        assert re.fullmatch(
            r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*( ; sys_platform == \"\w+\")?", line
        )


def test_conda_environment_installs_the_lock_and_this_package() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, pip = environment["dependencies"]
    # Any other way to name a version, Binder's repo2docker takes for none, and builds with 3.10.
    python, rest = conda[0].partition("=")[2], conda[1:]
    assert re.fullmatch(r"\d\.\d+", python)
    assert rest == ["pip"]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    (setup,) = (
        step["with"]
        for step in workflow["jobs"]["test"]["steps"]
        if "setup-python" in step.get("uses", "")
    )
    assert setup["python-version"] == python  # the one that the lock was made with
    assert pip["pip"] == [*lock_lines(), *EDITABLE]


def requirements(project: dict[str, Any]) -> list[Requirement]:
    """What a project declares of others; `browser` is pinned there and installed on demand."""
    declared = [*project["dependencies"]]
    for name, group in project["optional-dependencies"].items():
        declared += group if name != "browser" else []
    return list(map(Requirement, declared))


def test_lock_satisfies_what_the_packages_declare() -> None:
    locked = {canonicalize_name(r.name): r.specifier for r in map(Requirement, lock_lines())}
    for project in PROJECTS.values():
        for requirement in requirements(project["project"]):
            if requirement.name not in PROJECTS:
                (pin,) = locked[canonicalize_name(requirement.name)]
                assert requirement.specifier.contains(pin.version), requirement.name


@pytest.mark.parametrize("name", PROJECTS)
def test_a_package_takes_a_range_of_versions_of_the_others(name: str) -> None:
    versions = {each: import_module(each.replace("-", "_")).__version__ for each in PROJECTS}
    project = PROJECTS[name]["project"]
    assert project["name"] == name
    for requirement in map(Requirement, project["dependencies"]):
        if requirement.name in PROJECTS:
            assert requirement.specifier.contains(versions[requirement.name])
            assert {each.operator for each in requirement.specifier} == {">=", "<"}
    assert set(versions.values()) == {vramlab.__version__}  # one tag releases all three
    assert name != "vramlab" or not {"nbformat", "ipywidgets", "matplotlib"} & {
        requirement.name for requirement in map(Requirement, project["dependencies"])
    }


def test_conda_recipe_wants_what_the_package_declares() -> None:
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    project = PROJECTS["vramlab"]["project"]
    assert recipe["context"]["version"] == vramlab.__version__
    assert recipe["about"]["license"] == project["license"]
    names = {"pytorch": "torch"}  # conda-forge's name
    wanted = {
        names.get(name, name): SpecifierSet(versions)
        for name, _, versions in (line.partition(" ") for line in recipe["requirements"]["run"])
    }
    assert wanted.pop("python") == SpecifierSet(project["requires-python"])
    assert wanted == {r.name: r.specifier for r in map(Requirement, project["dependencies"])}
    commands = recipe["build"]["python"]["entry_points"]
    assert commands == [f"{name} = {where}" for name, where in project["scripts"].items()]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of the files that `make` needs, with an environment that looks installed."""
    for name in ("Makefile", "requirements.txt", *PROJECT_FILES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "make-environment", tmp_path / ".ci")
    installed = tmp_path / ".venv" / "installed"
    installed.mkdir(parents=True)
    shutil.copy(ROOT / "requirements.txt", installed)
    (installed / "projects").write_text(
        "".join((ROOT / name).read_text() for name in PROJECT_FILES)
    )
    script(tmp_path / ".venv" / "bin" / "python", "exit 0")
    return tmp_path


def script(path: Path, body: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # The tests may themselves run under `make test`, with another environment.
    outer = ("MAKE", "MFLAGS", "PYTHON", "VENV")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(outer)}
    return subprocess.run(
        ["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_make_leaves_an_up_to_date_environment_alone(checkout: Path) -> None:
    outcome = make(checkout, "environment", "PYTHON=/no/such/python")
    assert outcome.returncode == 0, outcome.stderr


def test_make_lab_opens_the_start_page_and_shows_the_whole_course(checkout: Path) -> None:
    script(checkout / ".venv" / "bin" / "jupyter", 'echo "$*"; pwd')
    outcome = make(checkout, "lab")
    # Given as a file, it would not be shown beside the folders.
    assert outcome.stdout.splitlines() == [
        "lab --LabApp.default_url=/lab/tree/start.ipynb",
        str(checkout),
    ]
    assert (ROOT / "start.ipynb").exists()


@pytest.mark.parametrize("changed", ["requirements.txt", *PROJECT_FILES])
def test_make_installs_again_when_the_lock_or_the_project_changed(
    checkout: Path, changed: str
) -> None:
    (checkout / changed).write_text("# changed\n")
    script(
        checkout / ".venv" / "bin" / "python",
        'case "$*" in *pip*) echo "$*" >> pip-calls;; esac',
    )
    script(checkout / "newest", 'case "$*" in -m*) exit 1;; esac')
    outcome = make(checkout, "environment", f"PYTHON={checkout / 'newest'}")
    assert outcome.returncode == 0, outcome.stderr
    assert (checkout / "pip-calls").read_text().splitlines() == [
        "-m pip install --quiet --quiet --requirement requirements.txt",
        f"-m pip install --quiet --quiet --no-deps {' '.join(EDITABLE)}",
    ]
    kept = checkout / ".venv" / "installed" / (changed if changed.endswith("txt") else "projects")
    assert "# changed\n" in kept.read_text()


def test_a_machine_with_an_old_python_is_told_what_to_install(checkout: Path) -> None:
    shutil.rmtree(checkout / ".venv")
    script(checkout / "old", 'case "$1" in --version) echo "Python 3.9.6";; *) exit 1;; esac')
    outcome = make(checkout, "environment", f"PYTHON={checkout / 'old'}")
    assert outcome.returncode != 0
    assert "vramlab needs Python 3.11 to 3.14;" in outcome.stderr
    assert "is Python 3.9.6." in outcome.stderr
    assert "make lab PYTHON=" in outcome.stderr


def test_a_python_that_torch_has_no_build_for_is_not_taken(checkout: Path) -> None:
    shutil.rmtree(checkout / ".venv")
    # What it is asked is run with another version than its own.
    newer = "import sys; sys.version_info = (3, 15, 0, 'final', 0); exec(sys.argv[1])"
    script(
        checkout / "newer",
        f'case "$1" in --version) echo "Python 3.15.0";;'
        f' *) exec {shlex.quote(sys.executable)} -c "{newer}" "$2";; esac',
    )
    outcome = make(checkout, "environment", f"PYTHON={checkout / 'newer'}")
    assert outcome.returncode != 0
    assert "vramlab needs Python 3.11 to 3.14;" in outcome.stderr
    assert "is Python 3.15.0." in outcome.stderr
