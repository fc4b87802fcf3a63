"""LSTMs and GRUs as CUDA runs them: one op of cuDNN's for all steps and layers.

Source: aten/src/ATen/native/cudnn/RNN.cpp and aten/src/ATen/cudnn/AutocastRNN.cpp, PyTorch 2.13;
what cuDNN takes: `vramlab/cuda_rules/cudnn_rnn.py`.

What cuDNN does not run goes step by step (`fused_cells.py`).

Known limitations: so do networks without gates and LSTMs with projections, for which no recording
of cuDNN exists. Where values are computed, the steps are those of the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from vramlab.cuda_rules.cudnn_rnn import RecurrentNetwork, dropout_state_bytes
from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.machine import VirtualDevice
from vramlab.gpu.core.op_table import cuda_path, handler
from vramlab.gpu.core.storage_record import record_of
from vramlab.gpu.ops.cuda_paths import PathContext
from vramlab.gpu.ops.recurrent.fused_cells import Settings, plain_steps, run_in_steps
from vramlab.gpu.torch_internals import (
    DisableTorchFunction,
    OpOverload,
)

aten = torch.ops.aten

_LSTM, _GRU = 2, 3
"""cudnnRNNMode_t."""

_dropout_states: WeakKeyDictionary[VirtualDevice, Tensor] = WeakKeyDictionary()


# ---- above autograd: PyTorch's choice, and what it gives to cuDNN ----


@cuda_path("aten.lstm.input")
def lstm(
    where: PathContext, input: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], *how: Any
) -> Any:
    """Run all of it as one op."""
    if _is_elsewhere(where, (input, *hx, *params)):
        return plain_steps(aten.lstm.input, input, hx, params, *how)
    if not _is_cudnns(where.device, input, hx):
        return run_in_steps(input, (), hx, params, Settings(*how))
    return _run(where, _LSTM, input, (), hx[0], hx[1], params, Settings(*how))


@cuda_path("aten.lstm.data")
def packed_lstm(
    where: PathContext,
    data: Tensor,
    batch_sizes: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    *how: Any,
) -> Any:
    """Run all of it as one op, on sequences of different lengths."""
    if _is_elsewhere(where, (data, *hx, *params)):
        return plain_steps(aten.lstm.data, data, batch_sizes, hx, params, *how)
    sizes = batch_sizes.tolist()
    if not _is_cudnns(where.device, data, hx):
        return run_in_steps(data, sizes, hx, params, Settings(*how))
    return _run(where, _LSTM, data, sizes, hx[0], hx[1], params, Settings(*how))


@cuda_path("aten.gru.input")
def gru(where: PathContext, input: Tensor, hx: Tensor, params: Sequence[Tensor], *how: Any) -> Any:
    """Run all of it as one op."""
    if _is_elsewhere(where, (input, hx, *params)):
        return plain_steps(aten.gru.input, input, hx, params, *how)
    if not _is_cudnns(where.device, input, [hx]):
        return run_in_steps(input, (), [hx], params, Settings(*how))
    return _run(where, _GRU, input, (), hx, None, params, Settings(*how))[:2]


@cuda_path("aten.gru.data")
def packed_gru(
    where: PathContext,
    data: Tensor,
    batch_sizes: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    *how: Any,
) -> Any:
    """Run all of it as one op, on sequences of different lengths."""
    if _is_elsewhere(where, (data, hx, *params)):
        return plain_steps(aten.gru.data, data, batch_sizes, hx, params, *how)
    sizes = batch_sizes.tolist()
    if not _is_cudnns(where.device, data, [hx]):
        return run_in_steps(data, sizes, [hx], params, Settings(*how))
    return _run(where, _GRU, data, sizes, hx, None, params, Settings(*how))[:2]


def _is_elsewhere(where: PathContext, operands: Sequence[Tensor]) -> bool:
    """Return whether the CPU computes it, or PyTorch refuses it: an operand is not on the GPU."""
    return where.has_values or not all(_is_on(where.device, operand) for operand in operands)


def _is_cudnns(device: VirtualDevice, input: Tensor, states: Sequence[Tensor]) -> bool:
    """Return whether cuDNN runs it, and it is known what it takes: `use_cudnn`."""
    return (
        torch.backends.cudnn.enabled
        and _computes_in(device, input.dtype)
        and len({state.size(-1) for state in states}) == 1
    )


def _computes_in(device: VirtualDevice, dtype: torch.dtype) -> bool:
    """Return whether PyTorch has cuDNN run networks of this type: of bfloat16, from Ampere on."""
    if dtype == torch.bfloat16:
        return device.model.compute_capability >= (8, 0)
    return dtype in torch.backends.cudnn.CUDNN_TENSOR_DTYPES


def _is_on(device: VirtualDevice, tensor: Tensor) -> bool:
    with DisableTorchFunction():
        record = record_of(tensor)
    return record is not None and record.device_index == device.index


def _run(
    where: PathContext,
    mode: int,
    input: Tensor,
    batch_sizes: Sequence[int],
    hx: Tensor,
    cx: Tensor | None,
    params: Sequence[Tensor],
    settings: Settings,
) -> tuple[Tensor, Tensor, Tensor]:
    """Source: `_cudnn_impl`, and `_cudnn_rnn_cast_reflatten`, which autocast puts before the op."""
    per_layer = 4 if settings.has_biases else 2
    count = _weight_count(params, per_layer)
    weight_buf = _buffer_of(params, count)
    state = _dropout_state(where, input) if settings.train and settings.dropout > 0 else None
    autocast = torch.is_autocast_enabled("cuda")
    if autocast:
        dtype = torch.get_autocast_dtype("cuda")
        weight_buf = input.new_zeros(count, dtype=dtype)
        params = _copied_into(weight_buf, params)
        cx = None if cx is None else cx.to(dtype)
        hx, input = hx.to(dtype), input.to(dtype)
    with torch.autocast("cuda", enabled=False) if autocast else nullcontext():
        output, hy, cy, _, _ = aten._cudnn_rnn(
            input,
            params,
            per_layer,
            weight_buf,
            hx,
            cx,
            mode,
            hx.size(-1),
            0,
            settings.layers,
            settings.batch_first,
            settings.dropout,
            settings.train,
            settings.bidirectional,
            batch_sizes,
            state,
        )
    return output, hy, cy


def _network(
    mode: int, input: Tensor, hidden_size: int, layers: int, bidirectional: bool
) -> RecurrentNetwork:
    return RecurrentNetwork(
        kind="lstm" if mode == _LSTM else "gru",
        hidden_size=hidden_size,
        layers=layers,
        directions=2 if bidirectional else 1,
        itemsize=input.element_size(),
    )


def _weight_count(params: Sequence[Tensor], per_layer: int) -> int:
    """Count the numbers in cuDNN's buffer, which has two biases for each layer in any case."""
    matrices = sum(param.numel() for param in params if param.dim() == 2)
    return matrices + 2 * params[0].size(0) * (len(params) // per_layer)


def _buffer_of(params: Sequence[Tensor], count: int) -> Tensor | None:
    """Return the buffer that has all weights, if they are in one (`try_get_weight_buf`)."""
    storage = params[0].untyped_storage()
    if storage.nbytes() != count * params[0].element_size():
        return None
    if any(param.untyped_storage().data_ptr() != storage.data_ptr() for param in params):
        return None
    return params[0].detach().as_strided((count,), (1,), 0)


def _dropout_state(where: PathContext, input: Tensor) -> Tensor:
    """Return the GPU's random numbers for dropout, which stay (`get_dropout_state`)."""
    if where.device not in _dropout_states:
        input.new_empty((), dtype=torch.int64)  # the seed
        size_bytes = dropout_state_bytes(where.device.model.multiprocessors)
        _dropout_states[where.device] = input.new_empty(size_bytes, dtype=torch.uint8)
    return _dropout_states[where.device]


def _copied_into(buffer: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """Copy weights into a buffer of another dtype, so that gradients go back to them."""
    copies = []
    for param, offset in zip(params, _offsets(params), strict=True):
        copy = buffer.new_empty(0)
        with torch.no_grad():
            copy.set_(buffer.untyped_storage(), offset, param.size(), _strides(param))
        copies.append(copy.copy_(param))
    return copies


def _offsets(params: Sequence[Tensor]) -> list[int]:
    """Where each parameter begins in cuDNN's buffer: matrices of all layers, then biases."""
    order = sorted(range(len(params)), key=lambda number: -params[number].dim())
    offsets, at = [0] * len(params), 0
    for number in order:
        offsets[number] = at
        at += params[number].numel()
    return offsets


# ---- below autograd: what the ops allocate, in their order ----


@handler("aten._cudnn_rnn_flatten_weight.default")
def flatten_weight(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Move all weights into one buffer."""
    params, per_layer = args[:2]
    buffer = _Ops(dispatcher)(aten.new_zeros.default, params[0], [_weight_count(params, per_layer)])
    for param, offset in zip(params, _offsets(params), strict=True):
        shape, strides = param.size(), param.stride()
        param.set_(buffer.untyped_storage(), offset, shape, strides)
    return buffer


@handler("aten._cudnn_rnn.default")
def cudnn_rnn(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run the forward pass; source: `_cudnn_rnn`."""
    input, weight, per_layer, weight_buf, hx, cx, mode = args[:7]
    hidden_size, _, layers, batch_first = args[7:11]
    _, train, bidirectional, batch_sizes, _ = args[11:]
    run = _Ops(dispatcher)
    dispatcher.count_call(func, run.device_index(input))
    network = _network(mode, input, hidden_size, layers, bidirectional)
    steps_first = batch_first and not batch_sizes
    x = run.contiguous(run.transposed(input) if steps_first else input)
    steps, batch = _steps_and_batch(x, batch_sizes)
    shape = [*x.shape[:-1], hidden_size * network.directions]
    output = run(aten.new_empty.default, input, shape)
    hy = run(aten.new_empty.default, hx, list(hx.shape))
    cy = run(aten.new_empty.default, hx, [0] if cx is None else list(cx.shape))
    if weight_buf is None:
        weight_buf = run(aten.new_empty.default, x, [_weight_count(weight, per_layer)])
    workspace = run.bytes_(x, network.workspace_bytes(steps, batch, training=train))
    reserve = run.bytes_(x, network.reserve_bytes(steps, batch) if train else 0)
    del workspace, x
    output = run.transposed(output) if steps_first else output
    return output, hy, cy, reserve, weight_buf


@handler("aten._cudnn_rnn_backward.default")
def cudnn_rnn_backward(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run the backward pass; source: `_cudnn_rnn_backward` and the two functions that it calls."""
    input, weight, _, weight_buf, hx, cx, output, grad_output, grad_hy, grad_cy = args[:10]
    mode, hidden_size, _, layers, batch_first, _, _, bidirectional, batch_sizes = args[10:19]
    needs_weights = args[21][3]
    if grad_output is None and grad_hy is None and grad_cy is None:
        return None, None, None, [None] * len(weight)
    run = _Ops(dispatcher)
    dispatcher.count_call(func, run.device_index(input))
    network = _network(mode, input, hidden_size, layers, bidirectional)
    # Gradients of what was not used: zeros.
    zeros = [
        run(aten.zeros_like.default, like)
        for grad, like in ((grad_output, output), (grad_hy, hx), (grad_cy, cx))
        if grad is None and like is not None
    ]
    steps_first = batch_first and not batch_sizes
    dy = grad_output if grad_output is not None else zeros[0]
    x = run.contiguous(run.transposed(input) if steps_first else input)
    dy = run.contiguous(run.transposed(dy) if steps_first else dy)
    steps, batch = _steps_and_batch(x, batch_sizes)
    dx = run(aten.new_empty.default, x, list(x.shape))
    dhx = run(aten.new_empty.default, hx, list(hx.shape))
    dcx = None if cx is None else run(aten.new_empty.default, cx, list(cx.shape))
    workspace_bytes = network.workspace_bytes(steps, batch, training=True)
    run.bytes_(x, workspace_bytes)
    dx = run.transposed(dx) if steps_first else dx
    del x, dy
    dw: list[Tensor] = []
    if needs_weights:
        x = run.contiguous(run.transposed(input) if steps_first else input)
        buffer = run(aten.new_zeros.default, weight_buf, [weight_buf.numel()])
        workspace = run.bytes_(x, workspace_bytes)
        if any(param.dim() == 1 for param in weight):
            dw = [
                run(aten.as_strided.default, buffer, param.size(), _strides(param), offset)
                for param, offset in zip(weight, _offsets(weight), strict=True)
            ]
        else:  # the buffer has biases, which the layers have not: the rest is copied out of it
            dw = [run(aten.new_empty.default, param, list(param.shape)) for param in weight]
        del workspace
    return dx, dhx, dcx, dw


def _steps_and_batch(x: Tensor, batch_sizes: Sequence[int]) -> tuple[int, int]:
    return (len(batch_sizes), batch_sizes[0]) if batch_sizes else (x.size(0), x.size(1))


def _strides(param: Tensor) -> tuple[int, ...]:
    return (param.size(1), 1) if param.dim() == 2 else (1,)


class _Ops:
    """Ops that a kernel's own code calls."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def __call__(self, func: OpOverload, *args: Any, **kwargs: Any) -> Tensor:
        result: Tensor = self._dispatcher.run(func, args, kwargs)
        return result

    def bytes_(self, like: Tensor, size_bytes: int) -> Tensor:
        return self(aten.new_empty.default, like, [size_bytes], dtype=torch.uint8)

    def transposed(self, tensor: Tensor) -> Tensor:
        return self(aten.transpose.int, tensor, 0, 1)

    def contiguous(self, tensor: Tensor) -> Tensor:
        if tensor.is_contiguous():
            return tensor
        return self(aten.clone.default, tensor, memory_format=torch.contiguous_format)

    def device_index(self, tensor: Tensor) -> int:
        record = record_of(tensor)
        assert record is not None
        return record.device_index
