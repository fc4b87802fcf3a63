"""Products of 8-bit numbers: which GPUs have them, what they take, and their values."""

from __future__ import annotations

import pytest
import torch

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU
from vramlab.units import KIB, MIB

E4M3 = torch.float8_e4m3fn


def operands(rows: int = 64, inner: int = 128, columns: int = 256) -> tuple[torch.Tensor, ...]:
    left = torch.zeros(rows, inner, device="cuda").to(E4M3)
    right = torch.zeros(columns, inner, device="cuda").to(E4M3).t()
    return left, right, torch.ones((), device="cuda")


def test_takes_its_result_and_keeps_a_workspace_as_the_native_engine_does() -> None:
    with VirtualGPU("H100", torch_version="2.13"):
        left, right, one = operands()
        growths = []
        for _ in range(2):
            before_bytes = torch.cuda.memory_allocated()
            product = torch._scaled_mm(left, right, one, one, out_dtype=torch.bfloat16)
            growths.append(torch.cuda.memory_allocated() - before_bytes)
        assert product.shape == (64, 256)
        # 64 x 256 x 2 B and Hopper's 32 MiB; then the first product goes as the second comes.
        assert growths == [32 * KIB + 32 * MIB, 0]


@pytest.mark.parametrize(("gpu", "has"), [("A100-40GB", False), ("L4", True), ("H100", True)])
def test_older_gpus_refuse(gpu: str, has: bool) -> None:
    with VirtualGPU(gpu):
        left, right, one = operands()
        if has:
            torch._scaled_mm(left, right, one, one, out_dtype=torch.bfloat16)
        else:
            with pytest.raises(RuntimeError, match=r"compute capability >= 9\.0 or 8\.9"):
                torch._scaled_mm(left, right, one, one, out_dtype=torch.bfloat16)


def test_values_are_multiplied_with_both_scales() -> None:
    with VirtualGPU("H100", values=True):
        left = torch.full((16, 16), 2.0).to("cuda").to(E4M3)
        right = torch.full((16, 16), 3.0).to("cuda").to(E4M3).t()
        half, quarter = torch.tensor(0.5).to("cuda"), torch.tensor(0.25).to("cuda")
        product = torch._scaled_mm(left, right, half, quarter, out_dtype=torch.float32)
        assert torch.equal(product.cpu(), torch.full((16, 16), 16 * 2 * 3 / 8))
        rows = torch.arange(1.0, 17)[:, None].to("cuda")
        ones = torch.ones(1, 16).to("cuda")
        by_rows = torch._scaled_mm(left, right, rows, ones, out_dtype=torch.bfloat16)
        assert by_rows[:, 0].tolist() == [96.0 * row for row in range(1, 17)]


@pytest.mark.parametrize("values", [False, True])
def test_what_kernels_cannot_read_is_refused(values: bool) -> None:
    with VirtualGPU("H100", values=values):
        left, right, one = operands()
        with pytest.raises(RuntimeError, match="mat2 must be col_major"):
            torch._scaled_mm(left, right.contiguous(), one, one, out_dtype=torch.bfloat16)


def test_scales_in_tiles_have_no_values() -> None:
    with VirtualGPU("H100", values=True):
        left, right, _ = operands()
        tiles = [
            torch.ones(rows * 4, device="cuda").to(torch.float8_e8m0fnu) for rows in (128, 256)
        ]
        with pytest.raises(UnsupportedOnVirtualGPU, match="scales lie in tiles"):
            torch._scaled_mm(left, right, *tiles, out_dtype=torch.bfloat16)


@pytest.mark.skipif(not hasattr(torch.ops.aten, "_scaled_addmm"), reason="came with PyTorch 2.15")
def test_one_is_added_to_a_matrix() -> None:
    for gpu, has in (("H100", True), ("A100-40GB", False)):
        with VirtualGPU(gpu):
            left, right, one = operands()
            added = torch.zeros(64, 256, dtype=torch.bfloat16, device="cuda")
            scaled = ([one], [0], [0], [one], [0], [0])
            torch.cuda.memory._record_memory_history("all", context=None)
            if has:
                torch.ops.aten._scaled_addmm(added, left, right, *scaled)
            else:
                with pytest.raises(RuntimeError, match="_scaled_addmm is only supported on CUDA"):
                    torch.ops.aten._scaled_addmm(added, left, right, *scaled)
            (trace,) = torch.cuda.memory._snapshot()["device_traces"]
            torch.cuda.memory._record_memory_history(None)
            sizes = [event["size"] for event in trace if event["action"] == "alloc"]
            assert sizes == ([32 * KIB, 2**20] if has else [])  # 64 x 256 x 2 B, and cuBLASLt's
