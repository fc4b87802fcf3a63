"""Ops for which meta tensors know no shape: modelled, or refused with what to do."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributions import Beta, Dirichlet
from torch.nn.functional import multi_margin_loss, multilabel_margin_loss

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU


def test_samples_with_gradients(gpu: VirtualGPU) -> None:
    concentration = torch.ones(5, 3, device="cuda", requires_grad=True)
    assert Dirichlet(concentration).rsample().shape == (5, 3)
    Beta(concentration, concentration).rsample().sum().backward()
    assert concentration.grad is not None
    assert concentration.grad.shape == (5, 3)
    assert "aten._sample_dirichlet.default" in gpu.unreviewed()  # only outputs are counted


def test_losses_of_margins(gpu: VirtualGPU) -> None:
    scores = torch.randn(4, 8, device="cuda", requires_grad=True)
    classes = torch.zeros(4, dtype=torch.long, device="cuda")
    loss = multi_margin_loss(scores, classes)
    loss = loss + multilabel_margin_loss(scores, classes[:, None].expand(4, 8))
    loss.backward()
    assert scores.grad is not None
    assert scores.grad.shape == (4, 8)


def test_quantization_that_is_trained_with(gpu: VirtualGPU) -> None:
    x = torch.randn(4, 8, device="cuda", requires_grad=True)
    scale, zero = torch.ones(1, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    before = torch.cuda.memory_allocated()
    out = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)
    # 32 elements in float32, and a mask of 32 B: a block of 512 B each
    assert torch.cuda.memory_allocated() - before == 2 * 512
    out = out + torch.fake_quantize_per_tensor_affine(x, scale, zero, -128, 127)
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == (4, 8)


@pytest.mark.parametrize(
    ("left", "right", "solution", "residuals"),
    [
        ((5, 3), (5, 2), (3, 2), (2,)),
        ((7, 5, 3), (7, 5), (7, 3), (7, 1)),
        ((3, 3), (3, 1), (3, 1), (0,)),
    ],
)
def test_least_squares(
    gpu: VirtualGPU,
    left: tuple[int, ...],
    right: tuple[int, ...],
    solution: tuple[int, ...],
    residuals: tuple[int, ...],
) -> None:
    found = torch.linalg.lstsq(torch.ones(left, device="cuda"), torch.ones(right, device="cuda"))
    assert found.solution.shape == solution
    assert found.residuals.shape == residuals
    assert found.rank.shape == (0,)
    of_host = torch.linalg.lstsq(torch.rand(left), torch.rand(right), driver="gels")
    assert found.solution.shape == of_host.solution.shape
    assert found.residuals.shape == of_host.residuals.shape
    assert found.rank.shape == of_host.rank.shape
    assert found.singular_values.shape == of_host.singular_values.shape


def test_from_waves_to_spectrogram_and_back(gpu: VirtualGPU) -> None:
    waves, window = torch.randn(2, 2048, device="cuda"), torch.hann_window(256, device="cuda")
    spectrogram = torch.stft(waves, 256, 64, window=window, return_complex=True)
    assert torch.istft(spectrogram, 256, 64, window=window).shape == (2, 2048)


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature", "ignore:Sparse")
def test_what_cannot_be_moved_says_what_to_do(gpu: VirtualGPU) -> None:
    with pytest.raises(UnsupportedOnVirtualGPU, match="Give the lazy module one batch on the host"):
        nn.LazyLinear(4).cuda()
    layer = nn.LazyLinear(4)
    layer(torch.ones(2, 3))
    assert layer.cuda().weight.is_cuda
    with pytest.raises(UnsupportedOnVirtualGPU, match=r"Make it one of layout torch.sparse_coo"):
        torch.eye(3).to_sparse_csr().to("cuda")
    with pytest.raises(UnsupportedOnVirtualGPU, match="Move its indices and values"):
        torch.eye(3).to_sparse().to("cuda").cpu()


def test_numbers_are_assigned_to_large_host_tensors() -> None:
    with VirtualGPU("T4", on_value="nan", host_values_below_bytes=64):
        large = torch.zeros(50, 4)
        large[3, 0] = 1
        large[torch.tensor([1, 2])] = 2.5
        assert (large.device.type, large.is_cpu) == ("cpu", True)
