"""Whose code a file is, and how it is named, wherever an environment lies."""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

import pytest
import torch

import vramlab
from packages import FOLDERS
from vramlab.source_files import PROGRAM_FOLDERS, CodeOwner, is_below, owner_of, shown_name

HERE = Path(vramlab.__file__).parent
COURSE = FOLDERS["vramlab_course"]
TORCH = Path(torch.__file__).parent
STDLIB = Path(sysconfig.get_path("stdlib"))
PROJECT = "/home/me/project"


def owner_and_name(filename: str | Path, folder: str | Path = PROJECT) -> tuple[CodeOwner, str]:
    return owner_of(str(filename)), shown_name(str(filename), str(folder))


@pytest.mark.parametrize(
    "environment",
    [
        f"{PROJECT}/.venv/lib/python3.11/site-packages",
        f"{PROJECT}/.venv/lib64/python3.11/site-packages",
        f"{PROJECT}/.pixi/envs/default/lib/python3.11/site-packages",
        "/home/me/venv/lib/python3.13t/site-packages",
        "/opt/conda/envs/train/lib/python3.12/site-packages",
        "/home/me/.local/lib/python3.11/site-packages",
        "/home/me/Library/Python/3.11/lib/python/site-packages",
        "/usr/lib/python3/dist-packages",
        "/usr/local/lib/python3.12/dist-packages",
        f"{PROJECT}/tools/../.venv/lib/python3.11/site-packages",
    ],
)
def test_a_library_is_named_from_itself_on_wherever_it_is_installed(environment: str) -> None:
    package = CodeOwner.PACKAGE
    for name in ("transformers/activations.py", "torchvision/models/resnet.py", "six.py"):
        assert owner_and_name(f"{environment}/{name}") == (package, name)
    assert owner_and_name(f"{environment}/lib-1.0-py3.11.egg/lib/net.py") == (package, "lib/net.py")
    assert owner_and_name(f"{environment}/torch/nn/modules/linear.py") == (
        CodeOwner.PYTORCH,
        "torch/nn/modules/linear.py",
    )


@pytest.mark.parametrize(
    "name", ["torchvision", "torchmetrics", "torch_geometric", "torchtune", "vramlab_mine"]
)
def test_names_that_begin_like_pytorch_and_vramlab_are_others(name: str) -> None:
    installed = Path(sysconfig.get_path("purelib"), name, "models.py")
    assert owner_and_name(installed) == (CodeOwner.PACKAGE, f"{name}/models.py")
    assert owner_and_name(HERE.with_name(f"{name}_too") / "train.py", HERE.parent) == (
        CodeOwner.PROGRAM,
        f"{name}_too/train.py",
    )
    assert owner_and_name(f"{HERE}_mine.py")[0] is CodeOwner.PROGRAM
    assert owner_and_name(f"{STDLIB}_mine/train.py")[0] is CodeOwner.PROGRAM


def test_pytorch_is_what_its_wheel_has() -> None:
    assert owner_and_name(TORCH / "optim" / "adam.py") == (CodeOwner.PYTORCH, "torch/optim/adam.py")
    assert owner_and_name(TORCH.with_name("functorch") / "__init__.py")[0] is CodeOwner.PYTORCH
    assert owner_and_name(f"{PROJECT}/torch/utils.py") == (CodeOwner.PROGRAM, "torch/utils.py")


def test_a_pytorch_built_where_its_source_lies_is_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vramlab import source_files

    monkeypatch.setattr(source_files, "_folder_of_torch", lambda: str(tmp_path / "pytorch"))
    assert owner_and_name(tmp_path / "pytorch" / "torch" / "serialization.py") == (
        CodeOwner.PYTORCH,
        "torch/serialization.py",
    )
    assert owner_and_name(tmp_path / "pytorch" / "benchmarks" / "run.py")[0] is CodeOwner.PROGRAM


def test_vramlab_is_told_from_the_programs_that_are_part_of_it() -> None:
    assert owner_and_name(HERE / "gpu" / "core" / "dispatcher.py") == (
        CodeOwner.VRAMLAB,
        "vramlab/gpu/core/dispatcher.py",
    )
    assert owner_and_name(HERE / "attachment.py")[0] is CodeOwner.VRAMLAB
    assert owner_and_name(COURSE / "lessons" / "l09_bert_in_training" / "encoder.py") == (
        CodeOwner.PROGRAM,
        "vramlab_course/lessons/l09_bert_in_training/encoder.py",
    )
    assert [name for name in PROGRAM_FOLDERS if not (HERE / name).is_dir()] == []


def test_pythons_library_is_told_from_what_is_installed_in_it() -> None:
    assert owner_and_name(STDLIB / "contextlib.py") == (CodeOwner.PYTHON, "contextlib.py")
    assert owner_and_name(os.__file__) == (CodeOwner.PYTHON, "os.py")
    assert owner_and_name(STDLIB / "asyncio" / "events.py") == (
        CodeOwner.PYTHON,
        "asyncio/events.py",
    )
    assert owner_and_name(STDLIB / "site-packages" / "timm" / "data.py") == (
        CodeOwner.PACKAGE,
        "timm/data.py",
    )
    assert owner_and_name("<frozen runpy>") == (CodeOwner.PYTHON, "<frozen runpy>")


@pytest.mark.parametrize(
    ("filename", "name"),
    [
        (f"{PROJECT}/train.py", "train.py"),
        (f"{PROJECT}/src/mine/net.py", "src/mine/net.py"),
        (f"{PROJECT}/scripts/../net.py", "net.py"),
        (f"{PROJECT}/.venv/src/editable/net.py", ".venv/src/editable/net.py"),
        (f"{PROJECT}/site-packages-of-mine/net.py", "site-packages-of-mine/net.py"),
        (f"{PROJECT}_two/train.py", "project_two/train.py"),
        ("/home/me/other/train.py", "other/train.py"),
        ("/train.py", "train.py"),
        (f"{PROJECT}/app.zip/net.py", "app.zip/net.py"),
        ("train.py", "train.py"),
    ],
)
def test_the_program_is_named_from_where_it_was_started(filename: str, name: str) -> None:
    assert owner_and_name(filename) == (CodeOwner.PROGRAM, name)


def test_an_editable_package_elsewhere_is_named_from_the_package_on(tmp_path: Path) -> None:
    package = tmp_path / "checkout" / "src" / "mine" / "models"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    assert owner_and_name(package / "net.py") == (CodeOwner.PROGRAM, "mine/models/net.py")
    assert owner_and_name(package / "net.py", tmp_path) == (
        CodeOwner.PROGRAM,
        "checkout/src/mine/models/net.py",
    )


def test_links_to_an_environment_may_have_been_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "disk" / "packages"
    real.mkdir(parents=True)
    linked = tmp_path / "project" / ".venv" / "lib" / "python3.11" / "site-packages"
    linked.parent.mkdir(parents=True)
    linked.symlink_to(real)
    assert owner_and_name(linked / "lib" / "net.py") == (CodeOwner.PACKAGE, "lib/net.py")
    monkeypatch.setattr(sys, "path", [*sys.path, str(linked)])
    assert owner_and_name(real / "lib" / "data.py") == (CodeOwner.PACKAGE, "lib/data.py")
    through = tmp_path / "stdlib"
    through.symlink_to(STDLIB)
    assert owner_and_name(through / "contextlib.py") == (CodeOwner.PYTHON, "contextlib.py")
    (tmp_path / "env").symlink_to(TORCH.parent)
    assert owner_and_name(tmp_path / "env" / "torch" / "hub.py") == (
        CodeOwner.PYTORCH,
        "torch/hub.py",
    )
    (tmp_path / "home").symlink_to(tmp_path / "project")
    assert owner_and_name(tmp_path / "project" / "train.py", tmp_path / "home")[1] == "train.py"


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_what_pip_has_put_into_a_folder_of_sys_path_is_installed(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `pip install --target` does it; what else lies there is the program's."""
    files = {
        "lib/net.py": "",
        "lib-1.0.dist-info/METADATA": "Name: lib\nVersion: 1.0\n",
        "lib-1.0.dist-info/RECORD": "lib/net.py,,\nlib-1.0.dist-info/METADATA,,\n",
        "lib_mine/train.py": "",
    }
    deps = tmp_path / "deps"
    if form == "zip":
        with zipfile.ZipFile(deps, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
    else:
        for name, text in files.items():
            (deps / name).parent.mkdir(parents=True, exist_ok=True)
            (deps / name).write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path, f"{deps}/"])
    assert owner_and_name(deps / "lib" / "net.py") == (CodeOwner.PACKAGE, "lib/net.py")
    assert owner_and_name(deps / "lib_mine" / "train.py", tmp_path) == (
        CodeOwner.PROGRAM,
        "deps/lib_mine/train.py",
    )


def test_a_checkout_that_is_installed_as_editable_is_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`setup.py develop` leaves an egg-info folder where the source lies."""
    (tmp_path / "mine.egg-info").mkdir()
    (tmp_path / "mine.egg-info" / "PKG-INFO").write_text("Name: mine\nVersion: 1.0\n")
    (tmp_path / "mine.egg-info" / "SOURCES.txt").write_text("mine/net.py\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert owner_and_name(tmp_path / "mine" / "net.py", tmp_path) == (
        CodeOwner.PROGRAM,
        "mine/net.py",
    )


@pytest.mark.parametrize(
    "filename",
    [
        f"{tempfile.gettempdir()}/ipykernel_4711/3456789.py",
        "<ipython-input-3-0123456789ab>",
        "/tmp/ipython-input-3.py",
    ],
)
def test_a_notebooks_cell_is_the_program(filename: str) -> None:
    assert owner_and_name(filename) == (CodeOwner.PROGRAM, "notebook cell")


@pytest.mark.parametrize("name", ["<stdin>", "<python-input-0>", "<console>", "<doctest a.b[0]>"])
def test_what_is_typed_in_is_the_program(name: str) -> None:
    assert owner_and_name(name) == (CodeOwner.PROGRAM, name)


def test_below_is_not_beginning_with() -> None:
    assert is_below("/a/optim/adam.py", "/a/optim")
    assert is_below("/a/transformer.py", "/a/transformer.py")
    assert not is_below("/a/optim_mine/adam.py", "/a/optim")
    assert is_below("/a.py", "/")
