"""Which workspace a call finds, from release to release."""

from __future__ import annotations

import pytest
from kernel_events import A100, H200, Model

from vramlab.kernels import CUBLAS, CUBLASLT, OUTPUTS, KernelContext
from vramlab.kernels.rule_table.cublas import Workspace, workspaces
from vramlab.units import KIB, MIB

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
    assert workspaces(CUBLAS, KernelContext(gpu, version)) == (
        Workspace("cublas", expected_bytes, True),
    )


def test_before_2_0_cublas_takes_its_workspace_elsewhere() -> None:
    assert workspaces(CUBLAS, KernelContext(A100, (1, 13))) == ()
    assert workspaces(CUBLASLT, KernelContext(A100, (1, 13))) == ()


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
    assert workspaces(CUBLASLT, KernelContext(A100, version)) == expected


def test_sharing_can_be_switched_either_way() -> None:
    on, off = ({"TORCH_CUBLASLT_UNIFIED_WORKSPACE": value} for value in "10")
    assert workspaces(CUBLASLT, KernelContext(A100, (2, 11), on)) == (KEPT,)
    assert workspaces(CUBLASLT, KernelContext(A100, (2, 13), off)) == (
        Workspace("cublaslt", MIB, True),
    )


def test_2_15_keeps_workspaces_only_when_asked_to() -> None:
    assert workspaces(CUBLAS, KernelContext(A100, (2, 15))) == (
        Workspace("cublas", BEFORE_HOPPER, False),
    )
    cache = {"TORCH_CUBLAS_WORKSPACE_CACHE": "1"}
    assert workspaces(CUBLASLT, KernelContext(A100, (2, 15), cache)) == (KEPT,)


def test_sizes_can_be_configured() -> None:
    environment = {"CUBLAS_WORKSPACE_CONFIG": ":16:8:4096:1", "CUBLASLT_WORKSPACE_SIZE": "512"}
    context = KernelContext(H200, (2, 11), environment)
    # 8 buffers of 16 KiB and one of 4096 KiB; 512 KiB
    assert [w.size_bytes for w in workspaces(CUBLASLT, context)] == [4224 * KIB, 512 * KIB]


@pytest.mark.parametrize("config", ["", "much", "4096:2", ":4096", ":-1:2", ":16 :8", ":big:1"])
@pytest.mark.parametrize(("gpu", "default_bytes"), [(A100, BEFORE_HOPPER), (H200, 32 * MIB)])
def test_without_a_pair_pytorch_warns(config: str, gpu: Model, default_bytes: int) -> None:
    context = KernelContext(gpu, (2, 11), {"CUBLAS_WORKSPACE_CONFIG": config})
    said = f"^Could not parse CUBLAS_WORKSPACE_CONFIG, .* workspace size of {default_bytes} bytes.$"
    with pytest.warns(UserWarning, match=said):
        assert workspaces(CUBLAS, context) == (Workspace("cublas", default_bytes, True),)


def test_a_size_set_from_python_wins_over_the_environment() -> None:
    context = KernelContext(
        A100, (2, 13), {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, cublas_workspace_bytes=3 * MIB
    )
    assert workspaces(CUBLAS, context) == (Workspace("cublas", 3 * MIB, True),)


def test_only_libraries_have_workspaces() -> None:
    with pytest.raises(ValueError, match="give CUBLAS or CUBLASLT"):
        workspaces(OUTPUTS, KernelContext(A100, (2, 13)))
