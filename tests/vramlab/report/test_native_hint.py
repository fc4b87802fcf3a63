"""What the portable engine cannot run, and the native one can."""

from __future__ import annotations

import pytest
import torch
from torch._inductor.exc import TritonMissing

import vramlab
from vramlab.native.report import Kind, SubstituteCall
from vramlab.report.running.native_hint import (
    foreign_library_hint,
    native_hint,
    refused_call_hint,
)


class FourBits(torch.nn.Parameter):
    """As bitsandbytes' `Params4bit`: it changes its bytes itself when it is moved."""

    def cuda(self, device: object = None) -> FourBits:
        self.data = torch.empty(self.numel() // 2, dtype=torch.uint8, device="cuda")
        return self


def test_parameters_that_change_themselves_are_for_the_native_engine() -> None:
    layer = torch.nn.Linear(8, 8, bias=False)
    layer.weight = FourBits(layer.weight.data, requires_grad=False)
    with vramlab.VirtualGPU("T4"), pytest.raises(RuntimeError) as caught:
        layer.cuda()
    assert "--engine native" in (native_hint(caught.value) or "")


def test_triton_comes_with_the_native_engine() -> None:
    missing = ModuleNotFoundError("No module named 'triton'", name="triton")
    assert "`vramlab native setup --triton`" in (native_hint(missing) or "")
    error = RuntimeError("the compiler failed")
    error.__cause__ = TritonMissing(None)
    assert "`vramlab native setup --triton`" in (native_hint(error) or "")


@pytest.mark.parametrize(
    ("said", "lacks"),
    [
        ("libcudart.so.12: cannot open shared object file: No such file", "libcudart.so.12"),
        ("/site/ops.so: undefined symbol: cusparseSDDMM", "cusparseSDDMM"),
    ],
)
def test_what_a_packages_library_misses_is_named(said: str, lacks: str) -> None:
    error = RuntimeError("its operators are not there")
    error.__cause__ = ImportError(said)
    hint = foreign_library_hint(error, "2.11.0+cu130") or ""
    assert lacks in hint
    assert "`vramlab native check PACKAGE`" in hint


@pytest.mark.parametrize(
    ("said", "library", "function"),
    [
        (
            "cusolver error: Unknown cusolver error number, when calling "
            "`cusolverDnCreateGesvdjInfo(&gesvdj_params)`",
            "libcusolver.so.12",
            "cusolverDnCreateGesvdjInfo",
        ),
        ("cuFFT error: CUFFT_NOT_SUPPORTED", "libcufft.so.12", "cufftCreate"),
        (
            "CUDA error: an error of cuSPARSE when calling `cusparseXcoo2csr(handle, rows)`",
            "libcusparse.so.12",
            "cusparseXcoo2csr",
        ),
    ],
)
def test_a_refused_call_is_named_with_its_line(said: str, library: str, function: str) -> None:
    refused = SubstituteCall(Kind.REFUSED, library, function, 1)
    assumed = SubstituteCall(Kind.ASSUMED, library, function, 1)
    other = SubstituteCall(Kind.REFUSED, "libnvrtc.so.13", "nvrtcOther", 1)
    hint = refused_call_hint(RuntimeError(said), [other, refused], "train.py:3: f(x)") or ""
    assert function in hint
    assert "train.py:3: f(x)" in hint
    assert "--engine portable" in hint
    assert refused_call_hint(RuntimeError(said), [other, assumed], None) is None
    assert refused_call_hint(RuntimeError("shapes differ"), [refused], None) is None
    assert refused_call_hint(None, [refused], None) is None
