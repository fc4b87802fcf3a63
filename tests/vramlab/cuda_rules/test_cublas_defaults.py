"""Workspaces with default settings, by GPU and release; and that kernels have no other numbers."""

from __future__ import annotations

from itertools import product

import pytest
from kernel_events import Model

from vramlab.cuda_rules.cublas import (
    Library,
    cublas_workspace_bytes,
    kept_workspace_bytes,
    workspaces,
)
from vramlab.kernels import CUBLAS, CUBLASLT, KernelContext, Marker
from vramlab.kernels.rule_table import cublas as kernels_cublas
from vramlab.units import MIB

CAPABILITIES = ((7, 0), (8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0))
VERSIONS = ((1, 13), *((2, minor) for minor in range(16)))


@pytest.mark.parametrize(
    ("capability", "version", "size_bytes"),
    [
        ((8, 0), (1, 13), 0),
        ((8, 0), (2, 0), 8_519_680),  # 2 x 4096 KiB + 8 x 16 KiB = 8.125 MiB
        ((9, 0), (2, 0), 8_519_680),
        ((9, 0), (2, 1), 32 * MIB),
        ((10, 0), (2, 11), 8_519_680),
        ((10, 0), (2, 12), 32 * MIB),
        ((11, 0), (2, 13), 8_519_680),
        ((11, 0), (2, 14), 32 * MIB),  # pytorch/pytorch#189312, July 2026
        ((11, 0), (2, 15), 0),  # taken for each call, and given back
    ],
)
def test_cublas_keeps(
    capability: tuple[int, int], version: tuple[int, int], size_bytes: int
) -> None:
    assert kept_workspace_bytes("cublas", capability, version) == size_bytes


def test_cublaslt_kept_a_workspace_of_its_own_for_a_while() -> None:
    own = [
        kept_workspace_bytes("cublaslt", (8, 0), version) - cublas_workspace_bytes((8, 0), version)
        for version in ((2, 8), (2, 9), (2, 11), (2, 12))
    ]
    assert own == [0, MIB, MIB, 0]
    assert kept_workspace_bytes("cublas", (8, 0), (2, 9)) == 8_519_680


@pytest.mark.parametrize(("library", "marker"), [("cublas", CUBLAS), ("cublaslt", CUBLASLT)])
def test_formulas_and_kernels_have_the_same_workspaces(library: Library, marker: Marker) -> None:
    for capability, version in product(CAPABILITIES, VERSIONS):
        context = KernelContext(Model(100, 2048, capability), version)
        taken = kernels_cublas.workspaces(marker, context)
        assert taken == workspaces(library, capability, version)
        kept_bytes = sum(workspace.size_bytes for workspace in taken if workspace.kept)
        assert kept_workspace_bytes(library, capability, version) == kept_bytes
