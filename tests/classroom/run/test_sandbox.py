"""Sandboxes: which there are, what a command line asks for, what is shown and what is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from packages import FOLDERS
from vramlab_classroom.judge.job_pool import KEPT_VARIABLES, neutral_environment
from vramlab_classroom.sandbox import bubblewrap as sandbox_module
from vramlab_classroom.sandbox.bubblewrap import (
    Bubblewrap,
    Docker,
    LimitsOnly,
    Podman,
    Sandbox,
    SandboxError,
    best,
    named,
)

PACKAGES = [folder.resolve() for folder in FOLDERS.values()]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let no program be found but those that a test puts into a folder."""
    monkeypatch.setenv("PATH", f"{tmp_path}")
    return tmp_path


def program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def options(command: list[str], name: str) -> list[str]:
    """Give the values of an option, in order."""
    return [value for option, value in pairwise(command) if option == name]


def listing(sandbox: Sandbox, folder: Path, **folders: list[Path]) -> set[str]:
    """Give the names in a folder, as seen from inside."""
    code = f"import os; print(*os.listdir({str(folder)!r}), sep='\\n')"
    command = [*sandbox.prefix(**folders), "-c", code]
    return set(subprocess.check_output(command, text=True).split())


@pytest.fixture
def bubblewrap() -> Bubblewrap:
    try:
        Bubblewrap().try_out()
    except SandboxError as error:
        pytest.skip(str(error))
    return Bubblewrap()


# Choosing.


def test_bubblewrap_is_best_where_it_works(bubblewrap: Bubblewrap) -> None:
    assert best() == (bubblewrap, "")


def test_the_trial_passes_where_python_starts() -> None:
    LimitsOnly().try_out()  # or tests of sandboxes would be skipped everywhere


def test_without_bubblewrap_there_are_limits_and_a_warning(empty_path: Path) -> None:
    sandbox, warning = best()
    assert sandbox == LimitsOnly()
    assert "without a sandbox" in warning
    assert "every file that you can: the gradebook, other submissions, the solutions" in warning
    assert "No such file or directory: 'bwrap'" in warning
    assert "apt install bubblewrap" in warning


def test_what_is_installed_but_forbidden_is_found_out(empty_path: Path) -> None:
    denial = "bwrap: Creating new namespace failed: Operation not permitted"
    program(empty_path / "bwrap", f"echo '{denial}' >&2; exit 1")
    assert denial in best()[1]
    with pytest.raises(SandboxError, match=r"Operation not permitted\. It needs Linux"):
        named("bubblewrap")


def test_limits_work_everywhere_and_can_be_asked_for(empty_path: Path) -> None:
    assert named("limits") == LimitsOnly()
    assert LimitsOnly().prefix() == [sys.executable]


# Containers, by their command lines: engines are rarely where tests run.


def test_a_container_shuts_out_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 100)
    command = Docker("course:1").prefix(visible=[ROOT / "tests"], hidden=[ROOT])
    assert command[:2] == ["docker", "run"]
    assert {"--rm", "--interactive", "--read-only"} < set(command)
    assert options(command, "--pull") == ["never"]
    assert options(command, "--network") == ["none"]
    assert options(command, "--ipc") == ["none"]
    assert options(command, "--cap-drop") == ["ALL"]
    assert options(command, "--security-opt") == ["no-new-privileges"]
    assert options(command, "--tmpfs") == [f"/jobs:size={64 * 2**20},mode=1777"]
    assert options(command, "--pids-limit") == ["128"]
    assert options(command, "--memory") == options(command, "--memory-swap") == [f"{8 * 2**30}"]
    assert options(command, "--user") == ["1000:100"]
    assert options(command, "--volume") == [
        *(f"{folder}:{folder}:ro" for folder in PACKAGES),
        f"{ROOT}/tests:{ROOT}/tests:ro",
    ]
    assert command[-3:] == ["--entrypoint", "python3", "course:1"]


def test_a_container_gets_the_variables_that_a_pool_sets() -> None:
    given = set(options(Docker("course").prefix(), "--env"))
    ours = {name for name in neutral_environment() if not name.startswith(KEPT_VARIABLES)}
    assert {"OMP_NUM_THREADS", "THP_MEM_ALLOC_ENABLE"} <= ours
    assert ours <= given


def test_root_is_nobody_in_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(os, "getgid", lambda: 0)
    for container in (Docker("course"), Podman("course")):
        assert options(container.prefix(), "--user") == ["65534:65534"]


def test_podman_without_root_keeps_the_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    command = Podman("course").prefix()
    assert command[0] == "podman"
    assert options(command, "--userns") == ["keep-id"]
    assert options(command, "--user") == []


def test_the_image_has_the_lock_and_nothing_of_the_course() -> None:
    lines = (ROOT / "autograder" / "Containerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith(("COPY", "ADD"))] == [
        "COPY requirements.txt ."
    ]


# Bubblewrap.


def test_of_two_nested_folders_the_inner_one_decides(
    bubblewrap: Bubblewrap, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    for name in ("shown/other", "shown/course/solutions", "shown/course/package"):
        (tmp_path / name).mkdir(parents=True)
    shown, course = tmp_path / "shown", tmp_path / "shown" / "course"
    folders = {"visible": [shown, course / "package"], "hidden": [course]}
    assert listing(bubblewrap, shown, **folders) == {"other", "course"}
    assert listing(bubblewrap, course, **folders) == {"package"}


def test_only_the_package_of_a_course_is_shown(bubblewrap: Bubblewrap) -> None:
    assert "solutions" in {path.name for path in ROOT.iterdir()}
    assert "solutions" not in listing(bubblewrap, ROOT, hidden=[ROOT])


@pytest.mark.parametrize(
    ("kernel", "limited"), [("6.1.0-18-amd64", True), ("5.14.0", True), ("5.10.0-28-arm64", False)]
)
def test_a_user_has_a_namespace_and_processes_are_limited_where_they_are_counted_there(
    monkeypatch: pytest.MonkeyPatch, kernel: str, limited: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=kernel))
    command = Bubblewrap().prefix()
    assert "--unshare-user" in command
    assert ("--nproc=128:128" in command) is limited


def test_root_becomes_somebody_without_name_and_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "getpid", lambda: 4336 + 7)  # there are 4336 such users
    command = Bubblewrap().prefix()
    assert "--unshare-user" not in command
    assert {"--reuid=61191", "--no-new-privs", "--bounding-set=-all", "--nproc=128:128"} < set(
        command
    )


def test_packages_of_an_environment_that_this_one_builds_upon_are_shown(
    bubblewrap: Bubblewrap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "site-packages"
    course = tmp_path / "course"
    for folder in (packages, course):
        folder.mkdir()
        (folder / "module.py").touch()
        monkeypatch.syspath_prepend(folder)
    assert listing(bubblewrap, packages) == {"module.py"}
    assert not course_is_shown(bubblewrap, course)


def course_is_shown(sandbox: Sandbox, course: Path) -> bool:
    code = f"import os; print(os.path.exists({str(course)!r}))"
    return "True" in subprocess.check_output([*sandbox.prefix(), "-c", code], text=True)


def test_a_sandbox_that_hangs_is_given_up(
    empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_module, "TRIAL_SECONDS", 0.2)
    program(empty_path / "bwrap", f"exec {shutil.which('sleep', path=os.defpath)} 30")
    assert "timed out after 0.2 seconds" in best()[1]
