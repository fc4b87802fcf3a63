"""Which engine `vramlab run` takes: what was set up decides, unless it is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vramlab.native import NativeEngineError, builds, cache, choice
from vramlab.native.builds import Build
from vramlab.native.choice import Choice, choose
from vramlab.native.substitutes import sources_fingerprint


@pytest.fixture
def set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; PyTorch 2.13.0 is what is installed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("VRAMLAB_NATIVE_GPU", raising=False)
    monkeypatch.setattr(choice, "installed_release", lambda: "2.13.0")
    return tmp_path


def put(release: str, sources: str | None = None, python: str | None = None) -> Build:
    """Pretend that a PyTorch is set up."""
    tag = python or builds.python_tag()
    folder = cache.folder() / "builds" / f"torch-{release}-{tag}"
    folder.mkdir(parents=True)
    build = Build(
        folder,
        f"{release}+cu130",
        13000,
        tag,
        folder,
        sources_fingerprint() if sources is None else sources,
        None,
    )
    builds.write(build, folder)
    return build


@pytest.mark.usefixtures("set_up")
class TestAuto:
    def test_nothing_changes_where_nothing_is_set_up(self) -> None:
        assert choose("auto") == choose("auto", "1.13") == Choice(native=False, why="")

    def test_the_installed_pytorch_is_taken_where_it_is_set_up(self) -> None:
        put("2.11.0")
        newest = put("2.13.1")
        assert choose("auto") == Choice(True, "PyTorch 2.13.1 is set up for it", newest)

    def test_without_an_installed_pytorch_the_newest_that_is_set_up_is_taken(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def not_installed() -> str:
            raise NativeEngineError("no PyTorch is installed here")

        monkeypatch.setattr(choice, "installed_release", not_installed)
        put("2.11.0")
        newest = put("2.13.1")
        assert choose("auto") == Choice(True, "no other PyTorch is installed", newest)

    def test_what_cannot_be_compiled_again_after_an_update_is_not_taken(self) -> None:
        put("2.13.0", sources="00000000")  # without its PyTorch
        chosen = choose("auto")
        assert not chosen.native
        assert "cannot be updated" in chosen.why

    def test_what_only_the_virtual_gpu_has_decides(self) -> None:
        put("2.13.0")
        chosen = choose("auto", portable_only="--on-value error")
        assert chosen == Choice(False, "--on-value error works only there")


@pytest.mark.usefixtures("set_up")
class TestToldWhich:
    def test_portable_is_never_something_else(self) -> None:
        put("2.13.0")
        assert choose("portable") == Choice(native=False)

    def test_native_is_an_error_where_it_cannot_be_had(self) -> None:
        put("2.13.0")
        with pytest.raises(NativeEngineError, match=r"PyTorch 2\.9 is not set up .*--torch 2\.9`"):
            choose("native", "2.9")
        with pytest.raises(
            NativeEngineError, match="--on-value error works only on the portable engine"
        ):
            choose("native", portable_only="--on-value error")

    def test_within_the_engine_nothing_is_started_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VRAMLAB_NATIVE_GPU", "count=1")
        assert choose("auto") == choose("native") == Choice(native=True)


@pytest.mark.parametrize(("ranks", "again"), [(1, False), (2, False), (4, True)])
def test_a_rank_begins_again_where_it_has_too_few_gpus(
    ranks: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vramlab import catalogue
    from vramlab.native import launch
    from vramlab.native.gpu import describe, described_count

    begun: list[object] = []
    monkeypatch.setattr(launch.os, "execv", lambda *command: begun.append(command))
    monkeypatch.setenv("VRAMLAB_NATIVE_GPU", describe(catalogue.find("T4"), 2))
    launch.begin_again_with(catalogue.find("T4"), ranks, "early")
    assert begun == ([(sys.executable, sys.orig_argv)] if again else [])
    assert described_count(os.environ["VRAMLAB_NATIVE_GPU"]) == max(2, ranks)


def test_the_kernel_starts_with_what_the_command_was_told(set_up: Path) -> None:
    from vramlab import catalogue
    from vramlab.native.kernel import specification

    written: Any = specification(put("2.13.0"), catalogue.find("t4"), 2)
    assert written["argv"][:-1] == [
        *(sys.executable, "-m", "vramlab", "native", "run"),
        *("--torch", "2.13.0+cu130", "--gpu", "T4", "--count", "2"),
        *("-m", "ipykernel_launcher", "-f", "{connection_file}"),
    ]
    assert written["display_name"] == "Python 3 (virtual GPU, native)"


@pytest.mark.parametrize("is_installed", [True, False])
def test_the_builds_pytorch_comes_before_one_beside_vramlab(
    tmp_path: Path, is_installed: bool
) -> None:
    """From a wheel, vramlab lies in the folder of the installed PyTorch; from a checkout, alone."""
    for folder, text in (("site", "the build's"), ("home", "the installed one"), ("cwd", "none")):
        (tmp_path / folder / "torch").mkdir(parents=True)
        (tmp_path / folder / "torch" / "__init__.py").write_text(f"name = {text!r}")
    for folder in ("home", "cwd"):
        (tmp_path / folder / "vramlab").mkdir()
        (tmp_path / folder / "vramlab" / "__init__.py").touch()
        (tmp_path / folder / "vramlab" / "cli.py").write_text(
            "import torch\ndef main(): print(torch.name, 'of', __file__)"
        )
    site, home = str(tmp_path / "site"), str(tmp_path / "home")
    done = subprocess.run(
        [sys.executable, "-c", choice._COMMAND_LINE.format(home=home)],
        env=os.environ | {"PYTHONPATH": f"{site}:{home}" if is_installed else site},
        cwd=tmp_path / "cwd",
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"the build's of {home}/vramlab/cli.py\n", done.stderr
