"""LSTMs and GRUs are one op of cuDNN's, with the memory that an H200 was seen to take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from vramlab.cuda_rules.cudnn_rnn import RecurrentNetwork, dropout_state_bytes
from vramlab.gpu import VirtualGPU
from vramlab.gpu.torch_internals import clear_cublas_workspaces
from vramlab.units import MIB

T, B, H, L = 128, 32, 1024, 2
U = T * B * H


@pytest.mark.parametrize(
    ("itemsize", "training", "workspace", "reserve"),
    [
        (4, True, 12 * 4 * U + 20 * B * H * 4 + 512, 11 * 4 * U + 16 * B * H + 256),
        (2, True, 13 * 2 * U + 20 * B * H * 2 + 512, 11 * 2 * U + 16 * B * H + 256),
        (4, False, 11 * 4 * U + 20 * B * H * 4 + 512, None),
    ],
)
def test_an_lstms_sizes_are_the_recordings(
    itemsize: int, training: bool, workspace: int, reserve: int | None
) -> None:
    network = RecurrentNetwork("lstm", H, L, 1, itemsize)
    assert network.workspace_bytes(T, B, training=training) == workspace
    recorded = {203_948_544, 110_363_136, 187_171_328, 185_073_920, 92_799_232}
    assert workspace in recorded  # assets/recordings/h200-torch2.11.0.*, zoo/lstm-*
    if reserve is not None:
        assert network.reserve_bytes(T, B) == reserve
        assert reserve in recorded
    assert dropout_state_bytes(132) == 6_488_064


@pytest.mark.parametrize(("kind", "reserve"), [("lstm", 736_000_000), ("gru", 864_000_000)])
def test_reserves_of_four_layers_are_the_published_ones(kind: Any, reserve: int) -> None:
    """23 and 27 times 25,000 steps of all sequences, 320 numbers of 4 B; states came later."""
    network = RecurrentNetwork(kind, 320, 4, 1, 4)
    steps, batch = 1000, 25
    states = 8 * 4 * batch * 320 + 256
    assert network.reserve_bytes(steps, batch) - states == reserve


def _weights(layer: nn.RNNBase) -> set[int]:
    return {weight.untyped_storage().data_ptr() for weight in layer.parameters()}


def test_weights_lie_in_one_buffer_and_gradients_in_another() -> None:
    with VirtualGPU("A100-40GB"):
        layer = nn.LSTM(3, 5, 2, bidirectional=True).cuda()
        assert len(_weights(layer)) == 1
        # 2 directions x 4 gates x 5 x (3 + 5 + 2), and of the second layer (10 + 5 + 2)
        assert next(layer.parameters()).untyped_storage().nbytes() == (400 + 680) * 4
        layer(torch.zeros(7, 2, 3, device="cuda"))[0].sum().backward()
        gradients = [weight.grad for weight in layer.parameters()]
        assert all(gradient is not None for gradient in gradients)
        shapes = [gradient.shape for gradient in gradients if gradient is not None]
        assert shapes == [weight.shape for weight in layer.parameters()]
        assert len({g.untyped_storage().data_ptr() for g in gradients if g is not None}) == 1


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3)])
def test_without_biases_gradients_are_copied_out_of_the_buffer(
    kind: type[nn.RNNBase], gates: int
) -> None:
    """Source: `_cudnn_rnn_backward_weight` in aten/src/ATen/native/cudnn/RNN.cpp, PyTorch 2.13."""
    with VirtualGPU("A100-40GB"):
        layer = kind(3, 5, 2, bias=False).cuda()
        layer(torch.zeros(7, 2, 3, device="cuda"))[0].sum().backward()
        gradients = [weight.grad for weight in layer.parameters() if weight.grad is not None]
        # gates x 5 numbers of 4 B, of 3 inputs, then of 5 inputs or states: each alone
        sizes = [gradient.untyped_storage().nbytes() for gradient in gradients]
        assert sizes == [gates * 5 * 3 * 4] + 3 * [gates * 5 * 5 * 4]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("batch_first", [False, True])
def test_the_forward_pass_keeps_its_reserve(kind: type[nn.RNNBase], batch_first: bool) -> None:
    with VirtualGPU("A100-40GB"):
        layer = kind(64, 256, batch_first=batch_first).cuda()
        x = torch.zeros((8, 32, 64) if batch_first else (32, 8, 64), device="cuda")
        before = torch.cuda.memory_allocated()
        out, _ = layer(x)
        assert out.shape == ((8, 32, 256) if batch_first else (32, 8, 256))
        u = 32 * 8 * 256 * 4
        reserve = (5 if kind is nn.LSTM else 6) * u + 8 * 8 * 256 + 512  # rounded up
        states = (4 if kind is nn.LSTM else 2) * 8 * 256 * 4  # h and c, before and after
        kept = torch.cuda.memory_allocated() - before
        assert kept == u + reserve + states  # the output, the reserve


def test_packed_sequences_take_what_the_longest_would() -> None:
    with VirtualGPU("A100-40GB"):
        layer = nn.LSTM(64, 256).cuda()
        x = torch.zeros(32, 8, 64, device="cuda")
        packed = nn.utils.rnn.pack_padded_sequence(x, [32, 30, 28, 8, 4, 2, 2, 1])
        before = torch.cuda.memory_allocated()
        out, _states = layer(packed)
        assert out.data.shape == (107, 256)
        reserve = 5 * 32 * 8 * 256 * 4 + 8 * 8 * 256 + 256
        states = 4 * 8 * 256 * 4  # of them, two more copies in the order of the batch
        kept = torch.cuda.memory_allocated() - before
        assert 0 <= kept - (107 * 256 * 4 + reserve + states) < MIB / 8
        out.data.sum().backward()


def test_a_network_without_gates_runs_step_by_step() -> None:
    with VirtualGPU("A100-40GB") as gpu:
        nn.RNN(4, 4).cuda()(torch.zeros(3, 2, 4, device="cuda"))[0].sum().backward()
        assert not any("cudnn_rnn.default" in str(func) for func in gpu.dispatcher.seen)


@pytest.mark.parametrize(("gpu", "is_one_op"), [("T4", False), ("A100-40GB", True)])
def test_networks_in_bfloat16_are_cudnns_from_ampere_on(gpu: str, is_one_op: bool) -> None:
    with VirtualGPU(gpu):
        layer = nn.LSTM(3, 5).cuda().bfloat16()
        output, _ = layer(torch.zeros(7, 2, 3, device="cuda", dtype=torch.bfloat16))
    assert (type(output.grad_fn).__name__ == "CudnnRnnBackward0") is is_one_op


def _rounded(*numbers: int) -> int:
    """Bytes of tensors of so many numbers of 2 B each, in blocks of 512 B."""
    return sum(-(-2 * number // 512) * 512 for number in numbers)


@pytest.mark.parametrize(("kind", "gates", "workspace"), [(nn.LSTM, 4, 4), (nn.GRU, 3, 5)])
def test_before_ampere_a_step_in_bfloat16_keeps_its_gates(
    kind: type[nn.RNNBase], gates: int, workspace: int
) -> None:
    """A step keeps products with input and state, what the kernel computed, h and an LSTM's c.

    The states before the first step are a tensor each; after the last, they are stacked, and the
    last h is not held by anything then.
    """
    steps, batch, hidden = 3, 8, 160
    u = batch * hidden
    states = 2 if kind is nn.LSTM else 1
    with VirtualGPU("T4"):
        layer = kind(96, hidden).cuda().bfloat16()
        x = torch.zeros(steps, batch, 96, device="cuda", dtype=torch.bfloat16)
        before = torch.cuda.memory_allocated()
        output, last = layer(x)
        clear_cublas_workspaces()
        step = _rounded(gates * u, gates * u, workspace * u) + states * _rounded(u)
        ends = 2 * states * _rounded(u) - _rounded(u)
        kept = torch.cuda.memory_allocated() - before
        assert kept == steps * step + ends + _rounded(steps * u)
        output.sum().backward()
        clear_cublas_workspaces()
        del output, last
        gradients = _rounded(gates * u // batch * 96, gates * u // batch * hidden)
        gradients += 2 * _rounded(gates * hidden)  # an LSTM's two biases have one sum, cloned
        assert torch.cuda.memory_allocated() - before == gradients


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_single_cell_is_one_kernel_of_any_type(dtype: torch.dtype) -> None:
    with VirtualGPU("A100-40GB"):
        x = torch.zeros(8, 96, device="cuda", dtype=dtype)
        h, c = nn.LSTMCell(96, 160).cuda().to(dtype)(x)
        assert type(h.grad_fn).__name__ == type(c.grad_fn).__name__ == "ThnnFusedLstmCellBackward0"
        h = nn.GRUCell(96, 160).cuda().to(dtype)(x)
        assert type(h.grad_fn).__name__ == "ThnnFusedGruCellBackward0"
        with pytest.raises(RuntimeError, match="input has inconsistent input_size: got 96 expect"):
            nn.LSTMCell(95, 160).cuda().to(dtype)(x)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("packed", [False, True])
def test_networks_in_steps_give_every_weight_its_gradient(
    kind: type[nn.RNNBase], packed: bool
) -> None:
    with VirtualGPU("T4"):
        layer = kind(4, 6, 2, bidirectional=True, dropout=0.1).cuda().bfloat16()
        x: Any = torch.zeros(5, 3, 4, device="cuda", dtype=torch.bfloat16)
        if packed:
            x = nn.utils.rnn.pack_padded_sequence(x, [5, 5, 2])
        output, last = layer(x)
        output = output.data if packed else output
        assert output.shape == ((12, 12) if packed else (5, 3, 12))
        state = last[0] if kind is nn.LSTM else last
        assert state.shape == (4, 3, 6)
        output.sum().backward()
        gradients = [weight.grad for weight in layer.parameters()]
        assert all(gradient is not None for gradient in gradients)


def test_an_input_in_bfloat16_decides_under_autocast_as_well() -> None:
    """`use_cudnn` asks the input's type, before autocast casts anything."""
    with VirtualGPU("T4"), torch.autocast("cuda", torch.bfloat16):
        layer = nn.LSTM(4, 6).cuda()
        x = torch.zeros(5, 3, 4, device="cuda")
        assert type(layer(x)[0].grad_fn).__name__ == "CudnnRnnBackward0"
        assert type(layer(x.bfloat16())[0].grad_fn).__name__ == "StackBackward0"
