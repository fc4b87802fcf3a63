"""Which workspace a call finds, from release to release."""

from __future__ import annotations

import pytest

from vramlab.kernels import CUBLAS, CUBLASLT, OUTPUTS, Launch
from vramlab.kernels.cublas import Workspace, workspaces
from vramlab.units import KIB, MIB

from .conftest import A100, H200, Model

B200 = Model(148, 2048, (10, 0))
THOR = Model(20, 1536, (11, 0))
RTX5090 = Model(170, 1536, (12, 0))

BEFORE_HOPPER = 8_519_680  # :4096:2:16:8 = 2 * 4096 KiB + 8 * 16 KiB


@pytest.mark.parametrize(
    ("gpu", "version", "expected_bytes"),
    [
        (A100, (2, 0), BEFORE_HOPPER),
        (A100, (2, 13), BEFORE_HOPPER),
        (H200, (2, 11), 32 * MIB),
        (H200, (2, 13), 32 * MIB),
        (B200, (2, 11), BEFORE_HOPPER),
        (B200, (2, 12), 32 * MIB),
        (RTX5090, (2, 13), 32 * MIB),
        (THOR, (2, 13), BEFORE_HOPPER),
        (THOR, (2, 14), 32 * MIB),
    ],
)
def test_the_default_depends_on_gpu_and_release(
    gpu: Model, version: tuple[int, int], expected_bytes: int
) -> None:
    assert workspaces(CUBLAS, Launch(gpu, version)) == (Workspace("cublas", expected_bytes, True),)


def test_before_2_0_cublas_takes_its_workspace_elsewhere() -> None:
    assert workspaces(CUBLAS, Launch(A100, (1, 13))) == ()
    assert workspaces(CUBLASLT, Launch(A100, (1, 13))) == ()


KEPT = Workspace("cublas", BEFORE_HOPPER, True)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ((2, 8), (Workspace("cublaslt", MIB, False), KEPT)),
        ((2, 9), (KEPT, Workspace("cublaslt", MIB, True))),
        ((2, 11), (KEPT, Workspace("cublaslt", MIB, True))),
        ((2, 12), (KEPT,)),
        ((2, 14), (KEPT,)),
        ((2, 15), (Workspace("cublaslt", MIB, False),)),
    ],
)
def test_cublaslt_shares_or_keeps_or_borrows(
    version: tuple[int, int], expected: tuple[Workspace, ...]
) -> None:
    assert workspaces(CUBLASLT, Launch(A100, version)) == expected


def test_sharing_can_be_switched_either_way() -> None:
    on, off = ({"TORCH_CUBLASLT_UNIFIED_WORKSPACE": value} for value in "10")
    assert workspaces(CUBLASLT, Launch(A100, (2, 11), on)) == (KEPT,)
    assert workspaces(CUBLASLT, Launch(A100, (2, 13), off)) == (Workspace("cublaslt", MIB, True),)


def test_2_15_keeps_workspaces_only_when_asked_to() -> None:
    assert workspaces(CUBLAS, Launch(A100, (2, 15))) == (Workspace("cublas", BEFORE_HOPPER, False),)
    cache = {"TORCH_CUBLAS_WORKSPACE_CACHE": "1"}
    assert workspaces(CUBLASLT, Launch(A100, (2, 15), cache)) == (KEPT,)


def test_sizes_can_be_configured() -> None:
    environment = {"CUBLAS_WORKSPACE_CONFIG": ":16:8:4096:1", "CUBLASLT_WORKSPACE_SIZE": "512"}
    launch = Launch(H200, (2, 11), environment)
    # 8 buffers of 16 KiB and one of 4096 KiB; 512 KiB
    assert [w.size_bytes for w in workspaces(CUBLASLT, launch)] == [4224 * KIB, 512 * KIB]


def test_what_cannot_be_read_counts_as_not_set() -> None:
    environment = {"CUBLAS_WORKSPACE_CONFIG": "much", "CUBLASLT_WORKSPACE_SIZE": "more"}
    launch = Launch(A100, (2, 11), environment)
    assert [w.size_bytes for w in workspaces(CUBLASLT, launch)] == [BEFORE_HOPPER, MIB]


def test_a_size_set_from_python_wins_over_the_environment() -> None:
    launch = Launch(
        A100, (2, 13), {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, cublas_workspace_bytes=3 * MIB
    )
    assert workspaces(CUBLAS, launch) == (Workspace("cublas", 3 * MIB, True),)


def test_only_libraries_have_workspaces() -> None:
    with pytest.raises(ValueError, match="give CUBLAS or CUBLASLT"):
        workspaces(OUTPUTS, Launch(A100, (2, 13)))
