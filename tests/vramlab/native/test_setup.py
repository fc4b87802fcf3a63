"""What `vramlab native` says where it cannot work, and what it keeps in the cache."""

from __future__ import annotations

import errno
import platform
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from vramlab import catalogue, cli, native
from vramlab.native import builds, compiler, fetch
from vramlab.native.builds import Build, python_tag
from vramlab.native.errors import NativeEngineError
from vramlab.native.needs import bundled, needs_of, torch_build, versions
from vramlab.native.substitutes import sources_fingerprint


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vramlab" / "native"


def a_build(cache: Path, version: str = "2.11.0+cu130", python: str | None = None) -> Build:
    """A build whose files are there, and empty."""
    release = version.partition("+")[0]
    site = cache / "sites" / f"torch-{release}"
    (site / "torch").mkdir(parents=True, exist_ok=True)
    (site / "torch" / "data").write_bytes(bytes(1000))
    folder = cache / "builds" / f"{version}-{python}"
    (folder / "lib").mkdir(parents=True)
    sources = sources_fingerprint()
    build = Build(folder, version, 13000, python or python_tag(), site, sources, None)
    builds.write(build, folder)
    return build


def a_site(folder: Path, text: str) -> Path:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "version.py").write_text(text)
    return folder


def test_another_platform_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(NativeEngineError, match=r"Linux x86_64; this is cpython on Darwin arm64"):
        native.set_up("2.11.0")


def test_without_a_compiler_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NativeEngineError, match=r"no C compiler.*pip install ziglang"):
        native.set_up("2.11.0")


def test_a_compiler_that_is_none_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    with pytest.raises(NativeEngineError, match="CC is 'no-such-compiler -O2'"):
        compiler.find_compiler()


def test_ziglang_is_taken_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: object())
    assert compiler.find_compiler() == (sys.executable, "-m", "ziglang", "cc")


@pytest.mark.parametrize("release", ["2.11", "latest", "2.11.0; rm"])
def test_what_is_no_release_is_refused(release: str, compiler: tuple[str, ...]) -> None:
    with pytest.raises(NativeEngineError, match=r"no release of PyTorch, such as 2\.11\.0"):
        native.set_up(release)


def test_a_full_disk_is_told_with_its_size(monkeypatch, cache: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2**30))
    with pytest.raises(NativeEngineError, match=r"has 1\.0 GiB left, .* takes 2\.5 GiB"):
        fetch.fetch("torch===2.11.0", "torch-2.11.0")
    assert list(cache.iterdir()) == []  # nothing half-made stays


def test_a_release_that_pip_does_not_find_leaves_nothing(monkeypatch, cache: Path) -> None:
    done = SimpleNamespace(returncode=1)
    monkeypatch.setattr(subprocess, "run", lambda *words, **how: done)
    with pytest.raises(NativeEngineError, match=r"pip found no torch===9\.9\.9 for cpython 3\."):
        fetch.fetch("torch===9.9.9", "torch-9.9.9")
    assert list(cache.iterdir()) == []


def test_a_broken_wheel_leaves_nothing(monkeypatch, cache: Path) -> None:
    def download(command, **how):
        Path(command[command.index("--dest") + 1], "torch-9.9.9.whl").write_bytes(b"half of it")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", download)
    with pytest.raises(NativeEngineError, match=r"torch-9\.9\.9\.whl cannot be unpacked"):
        fetch.fetch("torch===9.9.9", "torch-9.9.9")
    assert list(cache.iterdir()) == []


def test_programs_in_a_wheel_stay_executable(monkeypatch, cache: Path) -> None:
    """Triton's wheel brings the assembler that torch.compile starts."""

    def download(command, **how):
        path = Path(command[command.index("--dest") + 1], "triton-9.9.9.whl")
        with zipfile.ZipFile(path, "w") as archive:
            for name, mode in (("bin/ptxas", 0o755), ("bin/notes.txt", 0o644)):
                member = zipfile.ZipInfo(name)
                member.external_attr = mode << 16
                archive.writestr(member, "")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", download)
    site = fetch.fetch("triton==9.9.9", "triton-9.9.9")
    found = {path.name: bool(path.stat().st_mode & 0o100) for path in (site / "bin").iterdir()}
    assert found == {"ptxas": True, "notes.txt": False}


def test_a_disk_that_becomes_full_meanwhile_is_told(cache: Path) -> None:
    def fill_the_disk() -> None:
        with fetch.temporary_folder() as temporary:
            (temporary / "half").write_text("made")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(NativeEngineError, match=r"the cache .* cannot be written: .*No space left"):
        fill_the_disk()
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_told(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(NativeEngineError, match=r"the cache .*file.* cannot be written"):
        fetch.fetch("torch===2.11.0", "torch-2.11.0")


def test_a_build_without_cuda_is_refused_by_its_version(tmp_path: Path, compiler) -> None:
    site = a_site(tmp_path / "site", "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n")
    with pytest.raises(NativeEngineError, match=r"\(2\.13\.0\+cpu\) is a build without CUDA"):
        native.set_up(site=site)


def test_a_folder_without_pytorch_is_refused(tmp_path: Path, compiler) -> None:
    with pytest.raises(NativeEngineError, match="there is no PyTorch in"):
        native.set_up(site=tmp_path)


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    site = a_site(tmp_path, "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n")
    (site / "torch" / "lib").mkdir()
    (site / "torch" / "lib" / "libc10.so").write_text("version https://git-lfs")
    assert torch_build(site).cuda_version == 13000
    with pytest.raises(NativeEngineError, match=r"libc10\.so is no shared library"):
        needs_of(torch_build(site))


def test_versions_are_found_by_their_beginning(cache: Path) -> None:
    old, new = a_build(cache, "2.9.1+cu128"), a_build(cache, "2.11.0+cu130")
    a_build(cache, "2.13.0+cu130", python="cp27")
    assert [build.release for build in native.installed()] == ["2.9.1", "2.11.0", "2.13.0"]
    assert native.find() == new == native.find("2.11") == native.find("2.11.0+cu130")
    assert native.find("2.9") == old
    for version in ("2.1", "2.13.0"):  # not a beginning; for another Python
        with pytest.raises(
            NativeEngineError, match=rf"{version} is set up .*\(2\.9\.1\+cu128, 2\.11\.0\+cu130 is"
        ):
            native.find(version)


def test_a_file_of_another_vramlab_is_passed_over(cache: Path) -> None:
    (a_build(cache).folder / "build.json").write_text('{"other": 1}')
    assert native.installed() == []


def test_removing_takes_pytorch_along_unless_another_build_uses_it(cache: Path) -> None:
    one, other = a_build(cache), a_build(cache, python="cp27")
    assert one.site == other.site
    native.remove(one)
    assert not one.folder.exists()
    assert other.site.exists()
    native.remove(other)
    assert not other.site.exists()


def test_libraries_belong_to_a_build_and_go_with_it(cache: Path) -> None:
    """All of them come first where programs look; torch.compile writes into the build's folder."""
    build = a_build(cache)
    parts = {"cudnn": "cudnn/lib/libcudnn_graph.so.9", "nvrtc": "nvrtc/lib", "triton": "triton"}
    with_all = replace(build, **{name: cache / "sites" / path for name, path in parts.items()})
    for name in parts:
        (cache / "sites" / name).mkdir()
    builds.write(with_all, build.folder)
    assert native.find() == with_all
    before = {"PYTHONPATH": "mine", "LD_LIBRARY_PATH": "mine"}
    found = native.environment(with_all, catalogue.find("T4"), base=before)
    assert found["PYTHONPATH"] == f"{build.site}:{with_all.triton}:mine"
    assert found["LD_LIBRARY_PATH"] == f"{with_all.nvrtc}:{build.libraries}:mine"
    assert found["TORCHINDUCTOR_CACHE_DIR"] == str(build.folder / "compiled")
    native.remove(with_all)
    assert list((cache / "sites").iterdir()) == []


def test_removing_leaves_a_pytorch_that_is_not_the_caches(cache: Path, tmp_path: Path) -> None:
    build = a_build(cache)
    mine = tmp_path / "mine"
    shutil.move(build.site, mine)
    builds.write(replace(build, site=mine), build.folder)
    native.remove(native.find())
    assert (mine / "torch" / "data").exists()


def test_the_command_lists_and_removes(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["native", "list"]) == 0
    assert "Nothing is set up" in capsys.readouterr().out
    a_build(cache)
    assert cli.main(["native", "list"]) == 0
    assert "2.11.0+cu130" in capsys.readouterr().out
    assert cli.main(["native", "remove", "--torch", "2.11"]) == 0
    assert native.installed() == []


def test_running_without_a_setup_says_how(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    assert cli.main(["native", "run", "--torch", "2.12.0", str(script)]) == 2
    assert "`vramlab native setup --torch 2.12.0`" in capsys.readouterr().err


def test_an_unknown_gpu_and_a_missing_script_are_refused(tmp_path: Path, capsys) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    assert cli.main(["native", "run", "--gpu", "T5", str(script)]) == 2
    assert "No GPU named 'T5'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["native", "run", "no-such-script.py"])
    assert "can't open file 'no-such-script.py'" in capsys.readouterr().err


def test_a_pytorch_that_is_gone_is_told(cache: Path, tmp_path: Path, capsys) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    shutil.rmtree(a_build(cache).site)
    assert cli.main(["native", "run", str(script)]) == 2
    assert "has no PyTorch any more" in capsys.readouterr().err


def test_a_build_of_another_vramlab_is_refused(cache: Path, tmp_path: Path, capsys) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    build = a_build(cache)
    builds.write(replace(build, sources="00000000"), build.folder)
    assert cli.main(["native", "run", str(script)]) == 2
    assert "was set up by another version of vramlab" in capsys.readouterr().err


def test_versions_are_what_the_wheels_metadata_names(tmp_path: Path) -> None:
    (tmp_path / "torch-2.11.0.dist-info").mkdir()
    (tmp_path / "torch-2.11.0.dist-info" / "METADATA").write_text(
        "Requires-Dist: sympy\n"
        'Requires-Dist: nvidia-cudnn-cu13==9.19.0.56; platform_system == "Linux"\n'
        'Requires-Dist: nvidia-nccl-cu13==2.28.9; platform_system == "Linux"\n'
        'Requires-Dist: triton (==3.2.0) ; platform_system == "Linux"\n'  # up to PyTorch 2.6
    )
    assert bundled(tmp_path, "nvidia-cudnn") == "nvidia-cudnn-cu13==9.19.0.56"
    assert versions(tmp_path) == {
        "CUDNN_VERSION": 91900,  # 10000 * 9 + 100 * 19 + 0
        "NCCL_VERSION": 22809,
    }
    assert bundled(tmp_path, "triton") == "triton==3.2.0"
    assert bundled(tmp_path / "nothing", "nvidia-cudnn") is None
    assert versions(tmp_path / "nothing") == {}
