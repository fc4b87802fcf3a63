"""Set up the native engine: a PyTorch CUDA build, and substitutes for what it links with."""

from __future__ import annotations

import importlib.machinery
import os
import platform
import re
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from vramlab.native import builds, cache
from vramlab.native.builds import Build, python_tag
from vramlab.native.cache import move_into_place, temporary_folder
from vramlab.native.compiler import find_compiler
from vramlab.native.errors import NativeEngineError
from vramlab.native.fetch import fetch
from vramlab.native.launch import try_out
from vramlab.native.needs import TorchBuild, bundled, needs_of, torch_build, versions
from vramlab.native.substitutes import compile_all, fingerprint, sources_fingerprint
from vramlab.streams import print_error
from vramlab.units import GIB

_CUDNN_GRAPH = "libcudnn_graph.so.9"

NEEDED_BYTES = {
    "torch": 5 * GIB // 2,
    "nvidia-cudnn": 7 * GIB // 4,
    "nvidia-cuda-nvrtc": GIB // 2,
    "triton": 5 * GIB // 4,
}
"""Each wheel and its content, of the largest that are known: most are those for CUDA 12."""


def set_up(
    torch_version: str | None = None,
    *,
    site: Path | None = None,
    cudnn: bool = False,
    triton: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Build:
    """Set up a PyTorch; what is there already is not made again.

    Args:
        torch_version: such as `2.11.0`, or `2.11`, which is the same; None: that of the installed
            one, or of the one in `site`.
        site: a folder that has an unpacked PyTorch; None: it is fetched (0.5 GiB to download).
        cudnn: also fetch cuDNN's library, for convolutions and its attention (0.4 GiB to download).
        triton: also fetch Triton, for torch.compile (0.2 GiB to download).
        report: called with a line for each thing that is done.

    Returns:
        What can be run now.

    Raises:
        NativeEngineError: it cannot be set up; nothing half-made stays.
    """
    check_platform()
    compiler = find_compiler()
    if site is None:
        release = _release(torch_version or installed_release())
        report(f"PyTorch {release}: looking in the cache, or fetching its CUDA wheel")
        # Not ==, which takes what is built for the CPU (2.11.0+cpu) as well.
        site = fetch(
            f"torch==={release}",
            f"torch-{release}-{python_tag()}",
            NEEDED_BYTES["torch"],
            _problem_of_torch,
        )
    torch = torch_build(site.absolute())
    _check(torch, torch_version)
    report(f"reading what PyTorch {torch.version} needs of CUDA's libraries")
    needs = needs_of(torch)
    name = f"torch-{torch.version}-{python_tag()}-{fingerprint(needs)}"
    folder = cache.folder() / "builds" / name
    build = Build(
        folder,
        torch.version,
        torch.cuda_version,
        python_tag(),
        torch.site,
        sources_fingerprint(),
        _find_cudnn(torch.site, cudnn, report),
        _find_nvrtc(torch, cudnn, report),
        _find_triton(torch.site, triton, report),
    )
    if folder.is_dir():
        if build not in builds.installed() or not build.preloads.is_dir():
            try:
                _link_preloads(build.libraries, torch.cuda_version)
                builds.write(build, folder)
            except OSError as error:
                raise cache.cannot_be_written(error) from error
        return build
    with temporary_folder() as temporary:
        report(f"compiling {len(needs)} libraries with {' '.join(compiler)}")
        (temporary / "build" / "lib").mkdir(parents=True)
        macros = {"CUDA_VERSION": torch.cuda_version} | versions(torch.site)
        compile_all(needs, temporary / "build" / "lib", macros, compiler)
        _link_preloads(temporary / "build" / "lib", torch.cuda_version)
        builds.write(build, temporary / "build")
        report("trying it out")
        try_out(build, temporary / "build" / "lib")
        folder.parent.mkdir(exist_ok=True)
        move_into_place(temporary / "build", folder)
    _remove_outdated(build)
    return build


def find(version: str | None = None, report: Callable[[str], None] = print_error) -> Build:
    """Find what is set up for the running Python; after an update of vramlab, compile it again.

    That takes seconds, and downloads nothing.

    Args:
        version: such as `2.11.0`, `2.11` or `2.11.0+cu130`; None: the newest.
        report: called with a line when something is compiled.

    Raises:
        NativeEngineError: nothing that fits is set up, or it cannot be compiled.
    """
    build = builds.find(version)
    if build.sources == sources_fingerprint():
        return build
    report(f"vramlab was updated: compiling the libraries for PyTorch {build.release} again")
    return set_up(build.release, site=build.site)


def _link_preloads(libraries: Path, cuda_version: int) -> None:
    """Put substitutes where PyTorch finds them before the libraries that pip has installed.

    With a substitute for cudart, PyTorch takes itself for a build whose libraries pip installs, and
    loads those by their paths, past LD_LIBRARY_PATH: the first of each name under the folders of
    `sys.path`. NVIDIA's compiler stays its own, since cuDNN plans attention with it.

    Source: `_load_global_deps` and `_get_cuda_dep_paths` in torch/__init__.py, PyTorch 2.15.
    """
    folder = builds.preloads_beside(libraries) / "nvidia" / f"cu{cuda_version // 1000}" / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    for library in libraries.glob("*.so*"):
        link = folder / library.name
        if not library.name.startswith("libnvrtc") and not link.is_symlink():
            link.symlink_to(os.path.relpath(library, folder))


def check_platform() -> None:
    """Refuse what PyTorch's CUDA wheels of Linux do not run on.

    Raises:
        NativeEngineError: this is not Linux on x86-64 with CPython.
    """
    here = f"{platform.system()} {platform.machine()}"
    if here != "Linux x86_64" or sys.implementation.name != "cpython":
        raise NativeEngineError(
            "the native engine needs CPython on Linux x86_64, but this is "
            f"{sys.implementation.name} on {here}. Use the portable engine instead (`vramlab run`)."
        )


def installed_release() -> str:
    """Read the installed PyTorch's version, without what it was built for.

    Raises:
        NativeEngineError: none is installed.
    """
    try:
        return version("torch").partition("+")[0]
    except PackageNotFoundError:
        raise NativeEngineError(
            "PyTorch is not installed, so name a version to set up, for example --torch 2.11.0"
        ) from None


def _release(version: str) -> str:
    """Return the release that is meant: `2.11` is 2.11.0, as where `vramlab run` names it."""
    if not re.fullmatch(r"\d+\.\d+(\.\d+\w*(\+[\w.]+)?)?", version):
        raise NativeEngineError(
            f"invalid PyTorch version {version!r}: use a release, for example 2.11.0."
        )
    return version if version.count(".") > 1 else f"{version}.0"


def _problem_of_torch(site: Path) -> str | None:
    try:
        torch_build(site)
    except NativeEngineError:
        return "it is a build without CUDA"
    return None


def _check(torch: TorchBuild, version: str | None) -> None:
    """Refuse a PyTorch of another version than is asked for, or for another Python."""
    if version is not None and not f"{torch.version}+".startswith(f"{_release(version)}+"):
        raise NativeEngineError(f"the PyTorch in {torch.site} is {torch.version}, not {version}.")
    modules = sorted(path.name for path in (torch.site / "torch").glob("_C.*.so"))
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    if modules and not any(f"_C{suffix}" in modules for suffix in suffixes):
        raise NativeEngineError(
            f"the PyTorch in {torch.site} is for another Python ({modules[0]}); this one is "
            f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}."
        )


def _find_cudnn(site: Path, wanted: bool, report: Callable[[str], None]) -> Path | None:
    """cuDNN as this PyTorch asks for it: in the cache, or fetched if it is wanted."""
    folder = _find_library(site, "nvidia-cudnn", wanted, report)
    library = folder and folder / "nvidia" / "cudnn" / "lib" / _CUDNN_GRAPH
    return library if library and library.exists() else None


def _find_nvrtc(torch: TorchBuild, wanted: bool, report: Callable[[str], None]) -> Path | None:
    """NVRTC of this PyTorch's CUDA: in the cache, or fetched if it is wanted."""
    major, minor = torch.cuda.split(".")[:2]
    package = "nvidia-cuda-nvrtc" + ("-cu12" if major == "12" else "")
    folder = cache.folder() / "sites" / f"{package}-{major}.{minor}"
    if wanted and not folder.is_dir():
        report(f"downloading {package} {major}.{minor}")
        needed_bytes = NEEDED_BYTES["nvidia-cuda-nvrtc"]
        folder = fetch(f"{package}=={major}.{minor}.*", folder.name, needed_bytes)
    return next((path.parent for path in folder.glob(f"nvidia/*/lib/libnvrtc.so.{major}")), None)


def _find_triton(site: Path, wanted: bool, report: Callable[[str], None]) -> Path | None:
    """Triton as this PyTorch asks for it: in the cache, or fetched if it is wanted."""
    return _find_library(site, "triton", wanted, report, f"-{python_tag()}")


def _find_library(
    site: Path, package: str, wanted: bool, report: Callable[[str], None], tag: str = ""
) -> Path | None:
    """Find a package of the version that a PyTorch asks for, or fetch it if it is wanted."""
    requirement = bundled(site, package)
    if requirement is None:
        if wanted:
            raise NativeEngineError(
                f"the metadata of this PyTorch wheel names no version of {package}: leave out the "
                "option for it."
            )
        return None
    name = requirement.replace("==", "-") + tag
    folder = cache.folder() / "sites" / name
    if wanted and not folder.is_dir():
        report(f"downloading {requirement}")
        folder = fetch(requirement, name, NEEDED_BYTES[package])
    return folder if folder.is_dir() else None


def _remove_outdated(build: Build) -> None:
    """Remove substitutes of the same PyTorch that an earlier vramlab made."""
    for other in builds.installed():
        same = (other.torch_version, other.python, other.site)
        if same == (build.torch_version, build.python, build.site) and (
            os.fspath(other.folder) != os.fspath(build.folder)
        ):
            builds.remove(other)
