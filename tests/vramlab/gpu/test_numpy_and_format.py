"""What NumPy and formatting get of tensors that have no values."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from vramlab.gpu import VirtualGPU
from vramlab.gpu.ops.values import AnswerNan


def reads(gpu: VirtualGPU) -> dict[str, int]:
    assert isinstance(gpu.values, AnswerNan)
    counts: Counter[str] = Counter()
    for (what, _), times in gpu.values.reads.items():
        counts[what] += times
    return dict(counts)


def test_arrays_of_unknown_values_are_finite_and_noted(nan_gpu: VirtualGPU) -> None:
    logits = torch.randn(2, 3, device="cuda").cpu()
    labels = torch.randint(10, (4,), device="cuda").cpu()
    assert np.isfinite(logits.numpy()).all()
    assert np.histogram(logits.numpy())[0].sum() == 2 * 3  # which refuses nan
    assert np.isnan(logits.mean().numpy())  # a number that is printed, such as a loss
    assert logits.numpy().shape == (2, 3)
    assert labels.numpy().tolist() == [0, 0, 0, 0]
    assert labels.numpy().dtype == np.int64
    assert np.asarray(logits).shape == (2, 3)
    assert reads(nan_gpu) == {"numpy()": 7}


def test_arrays_may_be_larger_than_host_tensors_that_hold_values() -> None:
    with VirtualGPU("T4", on_value="nan", host_values_below_bytes=1024):
        logits = torch.randn(256, device="cuda").cpu()  # 1024 B
        assert logits.numpy().sum() == 0
        assert logits.tolist()[0] != logits.tolist()[0]
        assert torch.ones(256, device="cuda").cpu().numpy().sum() == 256


def test_numpy_refuses_what_it_refuses_on_cuda(nan_gpu: VirtualGPU) -> None:
    weight = torch.randn(2, device="cuda", requires_grad=True)
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        weight.detach().numpy()
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
        weight.cpu().numpy()
    assert weight.numpy(force=True).shape == (2,)


def test_a_number_is_formatted_as_a_number(nan_gpu: VirtualGPU) -> None:
    loss = torch.randn(8, device="cuda").sum()
    assert f"{loss:.4f} {loss} {loss:e}" == "nan nan nan"
    assert f"{torch.full((), 0.5, device='cuda'):.2f}" == "0.50"
    assert reads(nan_gpu) == {"item()": 3}


def test_other_tensors_are_formatted_as_tensors(nan_gpu: VirtualGPU) -> None:
    row = torch.randn(8, device="cuda")
    assert f"{row}" == repr(row)
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{row:.2f}"
    assert reads(nan_gpu) == {}


def test_a_parameter_with_values_can_be_printed() -> None:
    with VirtualGPU("T4", values=True):
        for device in ("cpu", "cuda"):
            parameter = torch.nn.Parameter(torch.ones(2, device=device))
            text = "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
            assert repr(parameter) == text
