"""What `vramlab native` says where it cannot work, and what it keeps in the cache."""

from __future__ import annotations

import errno
import io
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from vramlab import catalogue, cli, native
from vramlab.native import builds, compiler, fetch
from vramlab.native.builds import Build, python_tag
from vramlab.native.cache import temporary_folder
from vramlab.native.errors import NativeEngineError
from vramlab.native.needs import bundled, needs_of, torch_build, versions
from vramlab.native.report import CORE
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
    (folder / "lib" / CORE).touch()
    sources = sources_fingerprint()
    build = Build(folder, version, 13000, python or python_tag(), site, sources, None)
    builds.write(build, folder)
    return build


_INIT = """
import ctypes, os
from types import SimpleNamespace
_place = ctypes.c_void_p()
_library = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libtorch_cuda.so"))
assert _library.take(ctypes.byref(_place), ctypes.c_size_t(512)) == 0
cuda = SimpleNamespace(memory_allocated=lambda: 512)
class _Tensor(list):
    cuda = cpu = lambda self: self
    tolist = lambda self: list(self)
zeros = lambda count, device: _Tensor([0.0] * count)
tensor = _Tensor
"""
_LIBRARY = """
extern int cudaMalloc(void **, unsigned long);
int take(void **place, unsigned long bytes) { return cudaMalloc(place, bytes); }
"""


def a_torch(folder: Path, compiler: tuple[str, ...]) -> dict[str, str | bytes]:
    """The files of a PyTorch 9.9.9 that can do what setup tries, with one library."""
    made = folder / "made"
    made.mkdir(parents=True)
    (made / "cudart.c").write_text("int cudaMalloc(void **p, unsigned long n) { return 0; }")
    (made / "cuda.c").write_text(_LIBRARY)
    (made / "versions").write_text("libcudart.so.13 { global: *; };")
    words = [*compiler, "-shared", "-fPIC", "-fno-builtin"]
    runtime, library = made / "libcudart.so.13", made / "libtorch_cuda.so"
    script = f"-Wl,--version-script={made / 'versions'}"
    soname = f"-Wl,-soname,{runtime.name}"
    subprocess.run([*words, "-o", runtime, made / "cudart.c", soname, script], check=True)
    subprocess.run([*words, "-o", library, made / "cuda.c", runtime], check=True)
    return {
        "torch/version.py": "__version__ = '9.9.9+cu130'\ncuda: Optional[str] = '13.0'\n",
        "torch/__init__.py": _INIT,
        "torch/lib/libtorch_cuda.so": library.read_bytes(),
    }


def a_wheel(files: Mapping[str, str | bytes], programs: Mapping[str, str] | None = None) -> bytes:
    """A wheel with some files, and some more that can be executed."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for mode, members in ((0o644, files), (0o755, programs or {})):
            for name, text in members.items():
                member = zipfile.ZipInfo(name)
                member.external_attr = mode << 16
                archive.writestr(member, text)
    return content.getvalue()


class Pip:
    """Stands in for pip in the processes that this one starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def says(self, text: str) -> None:
        """Let it complain, and fail."""
        self._does(f"print({text!r}, file=sys.stderr); sys.exit(1)")

    def gives(self, name: str, content: bytes) -> None:
        """Let it download a file."""
        (self._folder / name).write_bytes(content)
        self._does(
            f"shutil.copy({str(self._folder / name)!r}, sys.argv[sys.argv.index('--dest') + 1])"
        )

    def waits(self) -> None:
        """Let it say which process it is, and stay."""
        self._does("print('waiting', os.getpid(), file=sys.stderr, flush=True); time.sleep(60)")

    def _does(self, text: str) -> None:
        (self._folder / "pip.py").write_text(f"import os, shutil, sys, time\n{text}\n")


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pip:
    folder = tmp_path / "pip"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return Pip(folder)


def unfinished(cache: Path) -> list[str]:
    """What lies in the cache beside what is in its place."""
    return sorted(path.name for path in cache.iterdir() if path.name not in ("sites", "builds"))


def a_site(folder: Path, text: str) -> Path:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "version.py").write_text(text)
    return folder


def test_without_a_compiler_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NativeEngineError, match=r"no C compiler.*pip install ziglang"):
        native.set_up("2.11.0")


def test_ziglang_is_taken_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: object())
    assert compiler.find_compiler() == (sys.executable, "-m", "ziglang", "cc")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        # pip's words: without a network, with nothing for this platform, and with a full disk.
        (
            "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken\n"
            "ERROR: Could not find a version that satisfies torch (from versions: none)",
            "pip cannot reach where it looks for torch===9.9.9: is there a network",
        ),
        (
            "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken\n"
            "ERROR: Could not find a version that satisfies torch (from versions: none)",
            r"pip found no torch===9\.9\.9 for cpython .*: nothing\.",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left",
            r"pip cannot fetch .*\(its status: 1\)\. It says: Could not install .*No space left",
        ),
        (
            "ERROR: Exception:\nTraceback (most recent call last):\nOSError: [Errno 28] No space",
            r"pip cannot fetch .*\. It says: OSError: \[Errno 28\] No space",
        ),
        ("", r"\(its status: 1\)\. It says: nothing"),
    ],
)
def test_what_pip_complains_of_is_told_and_leaves_nothing(
    pip: Pip, cache: Path, said: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    pip.says(said)
    with pytest.raises(NativeEngineError, match=told):
        fetch.fetch("torch===9.9.9", "torch-9.9.9", 1)
    assert capfd.readouterr().err.strip() == said  # it shows while pip runs
    assert unfinished(cache) == []


def test_what_a_killed_setup_has_left_the_next_one_removes(cache: Path) -> None:
    """But not a folder that a process still writes to, such as pip."""
    program = """
import os, signal, subprocess, sys
from vramlab.native.cache import in_use, temporary_folder
with temporary_folder() as temporary, in_use(temporary) as lock:
    pip = subprocess.Popen(["sleep", "60"], pass_fds=(lock,), stdout=-3, stderr=-3)  # DEVNULL
    print(temporary, pip.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    left, pip = done.stdout.split()
    assert done.returncode == -signal.SIGKILL
    with temporary_folder():
        assert Path(left).is_dir()
    os.kill(int(pip), signal.SIGKILL)
    deadline = time.monotonic() + 30
    while Path(left).exists() and time.monotonic() < deadline:  # until the kernel has ended it
        with temporary_folder():
            time.sleep(0.01)
    assert unfinished(cache) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_setup_leaves_nothing(
    pip: Pip, cache: Path, compiler, number: signal.Signals
) -> None:
    """128 and the signal's number, as shells count. pip ends as well."""
    pip.waits()
    words = [sys.executable, "-m", "vramlab", "native", "setup", "--torch", "9.9.9"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        pid = next(int(line.split()[1]) for line in process.stderr if line.startswith("waiting"))
        assert unfinished(cache) != []
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == 128 + number
    assert "Traceback" not in rest
    assert unfinished(cache) == []
    deadline = time.monotonic() + 30
    while psutil.pid_exists(pid) and time.monotonic() < deadline:  # until the kernel has ended it
        time.sleep(0.01)
    assert not psutil.pid_exists(pid)


def test_a_substitute_that_does_not_compile_leaves_no_build(
    pip: Pip, cache: Path, compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was fetched stays for the next time; `vramlab native remove` removes it."""
    pip.gives("torch-9.9.9.whl", a_wheel(a_torch(cache.parent, compiler)))
    monkeypatch.setenv("CC", "false")
    with pytest.raises(NativeEngineError, match=r"false cannot make libvramlab_native\.so"):
        native.set_up("9.9.9")
    assert unfinished(cache) == []
    assert native.installed() == []
    (left,) = native.unused_sites()
    assert left.name == f"torch-9.9.9-{python_tag()}"
    assert cli.main(["native", "remove"]) == 0
    assert native.unused_sites() == []


def test_a_package_that_pytorch_imports_and_is_not_here_is_named(
    pip: Pip, cache: Path, compiler
) -> None:
    files = a_torch(cache.parent, compiler) | {"torch/__init__.py": "import no_such_package\n"}
    pip.gives("torch-9.9.9.whl", a_wheel(files))
    with pytest.raises(NativeEngineError, match="needs the package no_such_package, which is not"):
        native.set_up("9.9.9")
    assert native.installed() == []


def test_a_setup_is_complete_or_not_there(
    pip: Pip, cache: Path, compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From pip to the trial, with a PyTorch that calls cudaMalloc and is otherwise empty."""
    pip.gives("torch-9.9.9.whl", a_wheel(a_torch(cache.parent, compiler)))
    build = native.set_up("9.9.9")
    assert native.find("9.9") == build
    assert {path.name for path in build.libraries.iterdir()} >= {"libcudart.so.13", CORE}
    assert unfinished(cache) == []
    # The second time, it calls no pip, and writes nothing: the cache may be another user's.
    pip.says("ERROR: asked again")
    before = (build.folder / "build.json").stat().st_mtime_ns
    assert native.set_up("9.9.9") == build
    assert (build.folder / "build.json").stat().st_mtime_ns == before
    # A relative folder is the same one from everywhere.
    monkeypatch.chdir(build.site.parent)
    assert native.set_up(site=Path(build.site.name)).site == build.site


def test_a_cache_that_cannot_be_written_keeps_what_it_has(cache: Path, monkeypatch) -> None:
    """As one of another user's, or one on a disk that is mounted read-only."""
    build = a_build(cache)

    def refuse(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(NativeEngineError, match=r"the cache .* cannot be written: .*denied"):
        native.remove(build)
    assert native.find() == build
    assert build.site.is_dir()


def test_a_build_without_cuda_is_refused_by_its_version(tmp_path: Path, compiler) -> None:
    site = a_site(tmp_path / "site", "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n")
    with pytest.raises(NativeEngineError, match=r"\(2\.13\.0\+cpu\) is a build without CUDA"):
        native.set_up(site=site)


def test_a_folders_pytorch_of_another_version_or_python_is_refused(
    tmp_path: Path, compiler
) -> None:
    site = a_site(tmp_path, "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n")
    with pytest.raises(NativeEngineError, match=r"is 2\.11\.0\+cu130, not 2\.1\.$"):
        native.set_up("2.1", site=site)
    (site / "torch" / "_C.cpython-27-x86_64-linux-gnu.so").write_bytes(b"")
    with pytest.raises(
        NativeEngineError, match=r"for another Python \(_C\.cpython-27-.*this one is"
    ):
        native.set_up("2.11", site=site)


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    site = a_site(tmp_path, "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n")
    (site / "torch" / "lib").mkdir()
    (site / "torch" / "lib" / "libc10.so").write_text("version https://git-lfs")
    assert torch_build(site).cuda_version == 13000
    with pytest.raises(NativeEngineError, match=r"libc10\.so is not a shared library"):
        needs_of(torch_build(site))


def test_versions_are_found_by_their_beginning(cache: Path) -> None:
    old, new = a_build(cache, "2.9.1+cu128"), a_build(cache, "2.11.0+cu130")
    a_build(cache, "2.13.0+cu130", python="cp27")
    assert [build.release for build in native.installed()] == ["2.9.1", "2.11.0", "2.13.0"]
    assert native.find() == new == native.find("2.11") == native.find("2.11.0+cu130")
    assert native.find("2.9") == old
    for version in ("2.1", "2.13.0"):  # not a beginning; for another Python
        with pytest.raises(
            NativeEngineError,
            match=rf"{version} is not set up .*\(set up: 2\.9\.1\+cu128, 2\.11\.0\+cu130\)",
        ):
            native.find(version)


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
    assert found["PYTHONPATH"] == f"{build.site}:{with_all.triton}:{build.preloads}:mine"
    assert found["LD_LIBRARY_PATH"] == f"{with_all.nvrtc}:{build.libraries}:mine"
    assert found["TORCHINDUCTOR_CACHE_DIR"] == str(build.folder / "compiled")
    native.remove(with_all)
    assert list((cache / "sites").iterdir()) == []


def test_what_is_preloaded_stays_unless_it_has_functions_of_cudas(
    cache: Path, tmp_path: Path
) -> None:
    build = a_build(cache)
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(b"\x7fELF\x02\x01")
    before = {"LD_PRELOAD": f"/a/libjemalloc.so {damaged}:/b/libcuda.so.1 libcudart.so.12"}
    found = native.environment(build, catalogue.find("T4"), base=before)
    assert found["LD_PRELOAD"] == f"/a/libjemalloc.so:{damaged}"


def test_the_command_lists_and_removes(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["native", "list"]) == 0
    assert "No PyTorch build is set up" in capsys.readouterr().out
    a_build(cache)
    assert cli.main(["native", "list"]) == 0
    assert "2.11.0+cu130" in capsys.readouterr().out
    assert cli.main(["native", "remove", "--torch", "2.11"]) == 0
    assert native.installed() == []


def test_a_program_is_ended_with_its_command(cache: Path, tmp_path: Path) -> None:
    """As a batch system ends it; the program may do something about it, and has the last word."""
    a_build(cache)
    script = tmp_path / "train.py"
    script.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('runs', flush=True)\n"
        "time.sleep(60)\n"
    )
    words = [sys.executable, "-m", "vramlab", "native", "run", str(script)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 7


def test_a_build_of_another_vramlab_is_compiled_again(
    pip: Pip, cache: Path, compiler: tuple[str, ...]
) -> None:
    pip.gives("torch-9.9.9.whl", a_wheel(a_torch(cache.parent, compiler)))
    build = native.set_up("9.9.9")
    builds.write(replace(build, sources="00000000"), build.folder)
    pip.says("there is no network")
    said: list[str] = []
    assert native.find("9.9.9", said.append) == build
    assert len(said) == 1
    assert native.find("9.9.9", said.append) == build
    assert len(said) == 1  # once is enough


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
