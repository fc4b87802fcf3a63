"""The workspaces that PyTorch gives cuBLAS and cuBLASLt out of its caching allocator.

Which there are, how large they are and whether they are kept changed from release to release. Each
boundary below was found in the released libraries (`libtorch_cuda.so` of the wheels on PyPI), by
their symbols and machine code; the source is aten/src/ATen/cuda/CublasHandlePool.cpp, and for
cuBLASLt before 2.9 aten/src/ATen/cuda/CUDABlas.cpp.

    before 2.0   none: cuBLAS allocates by itself, outside the caching allocator
    2.0 to 2.8   cuBLAS keeps one; each cuBLASLt call allocates 1 MiB and frees it
    2.9 to 2.11  cuBLASLt keeps one of 1 MiB as well, and making its handle makes cuBLAS's
    2.12 to 2.14 cuBLASLt uses cuBLAS's
    2.15         each call allocates its own and frees it

A workspace that is kept belongs to a handle and a stream. Handles belong to a thread and a device,
and the backward pass runs on a thread of its own: a training process keeps each of these twice. A
thread that ends leaves its handles to the next (`vramlab.gpu.core.handles`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from vramlab.units import KIB, MIB

Library = Literal["cublas", "cublaslt"]

BEFORE_HOPPER_BYTES = (2 * 4096 + 8 * 16) * KIB
""":4096:2:16:8, two buffers of 4096 KiB and eight of 16 KiB: document 001's 8.125 MiB."""

HOPPER_BYTES = 32 * MIB

_NOTHING_SET: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Workspace:
    """A workspace that a call needs.

    Attributes:
        pool: the library's map that it is kept in; with the handle and with the stream it is the
            key of a kept workspace.
        size_bytes: its size; none is taken of 0 bytes. A kept one that is smaller is replaced: the
            new one is allocated before the old one is given back (2.13 and later; the size cannot
            change before).
        kept: whether it stays until `torch._C._cuda_clearCublasWorkspaces()`. If not, it is taken
            for the call and given back when the op ends.
    """

    pool: Library
    size_bytes: int
    kept: bool


def workspaces(
    library: Library,
    compute_capability: tuple[int, int],
    torch_version: tuple[int, int],
    environment: Mapping[str, str] = _NOTHING_SET,
    cublas_bytes: int | None = None,
    cublaslt_bytes: int | None = None,
) -> tuple[Workspace, ...]:
    """List the workspaces that a call of a library needs, in the order in which it looks them up.

    Args:
        library: that is called.
        compute_capability: of the GPU.
        torch_version: (major, minor) whose rules hold.
        environment: the environment variables that PyTorch reads.
        cublas_bytes: `torch.backends.cuda.cublas_workspace_size`, where it was set.
        cublaslt_bytes: `torch.backends.cuda.cublaslt_workspace_size`, where it was set.
    """
    if torch_version < (2, 0):
        return ()
    if cublas_bytes is None:
        cublas_bytes = cublas_workspace_bytes(compute_capability, torch_version, environment)
    if cublaslt_bytes is None:
        cublaslt_bytes = cublaslt_workspace_bytes(environment)
    kept = torch_version < (2, 15) or _is_on(environment, "TORCH_CUBLAS_WORKSPACE_CACHE") is True
    cublas = Workspace("cublas", cublas_bytes, kept)
    if library == "cublas":
        return (cublas,)
    if torch_version < (2, 9):
        return (Workspace("cublaslt", cublaslt_bytes, kept=False), cublas)
    if kept and _is_unified(torch_version, environment):
        return (cublas,)
    cublaslt = Workspace("cublaslt", cublaslt_bytes, kept)
    return (cublas, cublaslt) if torch_version < (2, 12) else (cublaslt,)


def kept_workspace_bytes(
    library: Library, compute_capability: tuple[int, int], torch_version: tuple[int, int]
) -> int:
    """Add up what the first call of a library leaves behind in its thread, with default settings.

    A plain matrix product is cuBLAS's; that of a Linear layer with a bias is cuBLASLt's.
    """
    needed = workspaces(library, compute_capability, torch_version)
    return sum(workspace.size_bytes for workspace in needed if workspace.kept)


def cublas_workspace_bytes(
    compute_capability: tuple[int, int],
    torch_version: tuple[int, int],
    environment: Mapping[str, str] = _NOTHING_SET,
) -> int:
    """Return the size of cuBLAS's workspace; 0, with `:0:0`, is none.

    CUBLAS_WORKSPACE_CONFIG lists buffers as `:SIZE:COUNT` in KiB, `:4096:2:16:8` being 2 of 4 MiB
    and 8 of 16 KiB = 8,519,680 B, the default up to compute capability 8. From Hopper on it is
    32 MiB: exactly 9.0 since 2.1, also 10.x and 12.x since 2.12 (pytorch/pytorch#175344), also 11.x
    since 2.14 (pytorch/pytorch#189312). Whatever stands between such pairs counts for nothing;
    without a pair, PyTorch warns.

    Source: parseChosenWorkspaceSize in aten/src/ATen/cuda/CublasHandlePool.cpp.
    """
    major, _ = compute_capability
    if torch_version >= (2, 14):
        large = 9 <= major <= 12
    elif torch_version >= (2, 12):
        large = major in (9, 10, 12)
    else:
        large = torch_version >= (2, 1) and compute_capability == (9, 0)
    default_bytes = HOPPER_BYTES if large else BEFORE_HOPPER_BYTES
    config = environment.get("CUBLAS_WORKSPACE_CONFIG")
    if config is None:
        return default_bytes
    pairs = re.findall(r":([0-9]+):([0-9]+)", config)
    if not pairs:
        warnings.warn(
            "Could not parse CUBLAS_WORKSPACE_CONFIG, using default workspace size of "
            f"{default_bytes} bytes.",
            stacklevel=2,
        )
        return default_bytes
    return sum(int(size) * int(count) * KIB for size, count in pairs)


def cublaslt_workspace_bytes(environment: Mapping[str, str] = _NOTHING_SET) -> int:
    """Return the size of a cuBLASLt workspace of its own: CUBLASLT_WORKSPACE_SIZE in KiB, or 1 MiB.

    It is read as C++'s `std::stoi` reads: a number of 32 bits, and whatever follows it. PyTorch
    warns of anything else. What is below 0 becomes more than any GPU has.
    """
    text = environment.get("CUBLASLT_WORKSPACE_SIZE")
    if text is None:
        return MIB
    number = re.match(r"[ \t\n\v\f\r]*([+-]?[0-9]+)", text)
    size_kib = None if number is None else int(number[1])
    if size_kib is not None and -(2**31) <= size_kib < 2**31:
        return size_kib * KIB % 2**64
    problem = (
        "invalid CUBLASLT_WORKSPACE_SIZE,"
        if size_kib is None
        else "CUBLASLT_WORKSPACE_SIZE out of range,"
    )
    warnings.warn(f"{problem} using default workspace size of 1024 KiB.", stacklevel=2)
    return MIB


def _is_unified(version: tuple[int, int], environment: Mapping[str, str]) -> bool:
    """Return whether cuBLASLt uses cuBLAS's workspace: when asked to, by default since 2.12."""
    asked = _is_on(environment, "TORCH_CUBLASLT_UNIFIED_WORKSPACE")
    return version >= (2, 12) if asked is None else asked


def _is_on(environment: Mapping[str, str], name: str) -> bool | None:
    """Read a switch as `c10::utils::check_env` does: "1" is on, "0" off, all else is not set."""
    return {"1": True, "0": False}.get(environment.get(name, ""))
