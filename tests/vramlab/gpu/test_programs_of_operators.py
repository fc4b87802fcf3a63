"""Operators that take functions, and tensors that hold others: their parts are what is counted."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._ops import HigherOrderOperator
from torch.nn.attention.flex_attention import flex_attention

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU
from vramlab.gpu.core.higher_order import in_eager


@pytest.mark.filterwarnings("ignore:flex_attention called without", "ignore:torch.compile is not")
def test_flex_attention_keeps_all_scores_in_eager_mode(gpu: VirtualGPU) -> None:
    q, k, v = (torch.randn(1, 2, 256, 64, device="cuda", requires_grad=True) for _ in range(3))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.1)
    scores_bytes = 2 * 256 * 256 * 4
    assert torch.cuda.max_memory_allocated() - before > 2 * scores_bytes
    out.sum().backward()
    assert q.grad is not None
    assert q.grad.shape == q.shape
    assert "aten.matmul.default" not in gpu.unreviewed()  # it was taken apart


def test_an_operator_without_an_eager_program_is_named() -> None:
    class ForCompilers(HigherOrderOperator):
        def __init__(self) -> None:
            super().__init__("for_compilers_only", cacheable=False)

        def __call__(self) -> None:
            super().__call__()

    with pytest.raises(UnsupportedOnVirtualGPU, match="for_compilers_only is not modelled"):
        in_eager(ForCompilers())


def test_jagged_tensors(gpu: VirtualGPU) -> None:
    layer = nn.Linear(64, 64).cuda()
    before = torch.cuda.memory_allocated()
    jagged = torch.nested.nested_tensor(
        [torch.randn(5, 64), torch.randn(9, 64)], layout=torch.jagged, device="cuda"
    )
    # 14 rows of 64 float32 (3584 B), and the 3 offsets, in a block of 512 B
    assert torch.cuda.memory_allocated() - before == 3584 + 512
    out = layer(jagged)
    assert out.is_nested
    assert out.device == torch.device("cuda", 0)
    assert torch.nested.to_padded_tensor(out, 0.0).shape == (2, 9, 64)
    out.values().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.is_cuda
    assert "aten.linear.default" not in gpu.unreviewed()
    del out, jagged


def test_encoders_keep_padding_without_values(nan_gpu: VirtualGPU) -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).cuda().eval()
    mask = torch.zeros(2, 5, dtype=torch.bool, device="cuda")
    with torch.no_grad():
        out = encoder(torch.zeros(2, 5, 16, device="cuda"), src_key_padding_mask=mask)
    assert out.shape == (2, 5, 16)
    assert not out.is_nested


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")  # of PyTorch 2.12
def test_the_profiler_runs_with_the_activity_of_cuda_alone(gpu: VirtualGPU) -> None:
    x = torch.ones(4, device="cuda")
    cuda = torch.profiler.ProfilerActivity.CUDA
    assert cuda in torch.profiler.supported_activities()
    with (
        pytest.warns(UserWarning, match="records the host's part only"),
        torch.profiler.profile(activities=[cuda]) as profile,
    ):
        x.add(1)
    assert all(event.device_time_total == 0 for event in profile.key_averages())
    with torch.autograd.profiler.emit_nvtx():
        x.add(1)


def test_the_profiler_records_the_hosts_part(gpu: VirtualGPU) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with (
        pytest.warns(UserWarning, match="no time passes on a virtual GPU"),
        torch.profiler.profile(activities=activities) as profile,
    ):
        torch.ones(4, device="cuda").exp()
    assert "aten::exp" in {event.key for event in profile.key_averages()}
