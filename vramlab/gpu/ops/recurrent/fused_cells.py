"""Single cells, and LSTMs and GRUs that cuDNN does not run: one kernel for all gates of a step.

Source: `LSTMCell`, `GRUCell` and the layers in aten/src/ATen/native/RNN.cpp, and
aten/src/ATen/native/cuda/RNN.cu, PyTorch 2.13. Elsewhere than on CUDA, each gate is an op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import cuda_path, handler
from vramlab.gpu.ops.cuda_paths import PathContext
from vramlab.gpu.torch_internals import DispatchKey, OpOverload, kernel_of

aten = torch.ops.aten

Hidden = tuple[Tensor, ...]
"""What a layer passes from one step to the next in one direction: h, and an LSTM's c."""


class Weights(NamedTuple):
    """Of one layer in one direction (`CellParams`)."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None
    w_hr: Tensor | None = None
    """What an LSTM projects h with."""


class Settings(NamedTuple):
    """Of a network, as `aten.lstm` and `aten.gru` get them."""

    has_biases: bool
    layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool = False
    """Never of a packed sequence."""

    @property
    def directions(self) -> int:
        """Count the directions in which each layer runs."""
        return 2 if self.bidirectional else 1


# ---- above autograd: PyTorch's steps ----


@cuda_path("aten.lstm_cell.default")
def lstm_cell(
    where: PathContext, input: Tensor, hx: Sequence[Tensor], *weights: Tensor
) -> tuple[Tensor, ...]:
    """Run one step of an LSTM."""
    if where.has_values or not _fit(4, input, hx, Weights(*weights)):
        return plain_steps(aten.lstm_cell.default, input, hx, *weights)
    return _step(input, tuple(hx), Weights(*weights))


@cuda_path("aten.gru_cell.default")
def gru_cell(where: PathContext, input: Tensor, hx: Tensor, *weights: Tensor) -> Tensor:
    """Run one step of a GRU."""
    if where.has_values or not _fit(3, input, [hx], Weights(*weights)):
        return plain_steps(aten.gru_cell.default, input, hx, *weights)
    return _step(input, (hx,), Weights(*weights))[0]


def _fit(gates: int, input: Tensor, hidden: Sequence[Tensor], weights: Weights) -> bool:
    """Return whether the shapes fit. If they do not, PyTorch's own steps have the words for it."""
    hidden_size = weights.w_hh.size(-1)
    rows = (gates * hidden_size,)
    return (
        weights.w_ih.shape == (*rows, input.size(-1))
        and weights.w_hh.shape == (*rows, hidden_size)
        and all(state.shape == (input.size(0), hidden_size) for state in hidden)
    )


def plain_steps(func: OpOverload, *args: Any) -> Any:
    """Run PyTorch's own steps, those of C++; `func.decompose` would take Python's."""
    return kernel_of(func, DispatchKey.CompositeImplicitAutograd)(*args)


def run_in_steps(
    input: Tensor,
    batch_sizes: Sequence[int],
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    settings: Settings,
) -> tuple[Tensor, ...]:
    """Run a network step by step: its output, and its last states.

    Args:
        input: (steps, batch, features), or the data of a packed sequence.
        batch_sizes: of a packed sequence, else empty.
        states: h, and an LSTM's c, of all layers and directions.
        params: of all layers and directions.
        settings: of the network.
    """
    x = input.transpose(0, 1) if settings.batch_first else input
    weights = _weights_of(
        params, settings.has_biases, len({state.size(-1) for state in states}) > 1
    )
    hidden = list(zip(*(state.unbind(0) for state in states), strict=True))
    directions = settings.directions
    last: list[Hidden] = []
    for first in range(0, len(hidden), directions):
        both = slice(first, first + directions)
        x, final = _layer(x, batch_sizes, hidden[both], weights[both])
        last += final
        if settings.dropout and settings.train and both.stop < len(hidden):
            x = aten.dropout(x, settings.dropout, True)
    return (x.transpose(0, 1) if settings.batch_first else x, *_joined(torch.stack, last))


def _weights_of(params: Sequence[Tensor], has_biases: bool, is_projected: bool) -> list[Weights]:
    per_layer = (4 if has_biases else 2) + is_projected
    layers = [params[at : at + per_layer] for at in range(0, len(params), per_layer)]
    if not is_projected:
        return [Weights(*each) for each in layers]
    return [Weights(*each[:-1])._replace(w_hr=each[-1]) for each in layers]


def _joined(join: Any, hidden: Sequence[Hidden]) -> Hidden:
    return _of_each(join, tuple(zip(*hidden, strict=True)))


def _rows(hidden: Hidden, start: int, end: int) -> Hidden:
    return _of_each(lambda state: state.narrow(0, start, end - start), hidden)


def _of_each(function: Callable[[Any], Tensor], parts: Sequence[Any]) -> Hidden:
    """Call for h and for c: for c first, as GCC evaluates arguments from the right."""
    return tuple(reversed([function(part) for part in reversed(parts)]))


def _step(input: Tensor, hidden: Hidden, weights: Weights) -> Hidden:
    """Run `LSTMCell`, or `GRUCell` without c."""
    input_gates = aten.matmul(input, weights.w_ih.t())
    hidden_gates = aten.matmul(hidden[0], weights.w_hh.t())
    cell = aten._thnn_fused_gru_cell if len(hidden) == 1 else aten._thnn_fused_lstm_cell
    *states, _workspace = cell(input_gates, hidden_gates, hidden[-1], weights.b_ih, weights.b_hh)
    if weights.w_hr is not None:
        return aten.matmul(states[0], weights.w_hr.t()), states[1]
    return tuple(states)


def _layer(
    x: Tensor, batch_sizes: Sequence[int], hidden: Sequence[Hidden], weights: Sequence[Weights]
) -> tuple[Tensor, list[Hidden]]:
    """Run a layer in one direction or both, `FullBidirectionalLayer` and its like."""
    if batch_sizes:
        runs = [_packed(x, batch_sizes, hidden[0], weights[0])]
        if len(hidden) > 1:
            runs.append(_packed_backwards(x, batch_sizes, hidden[1], weights[1]))
    else:
        steps = x.unbind(0)
        runs = [_full(steps, False, hidden[0], weights[0])]
        if len(hidden) > 1:
            runs.append(_full(steps, True, hidden[1], weights[1]))
    outputs = [output for output, _ in runs]
    return torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0], [last for _, last in runs]


def _full(
    steps: Sequence[Tensor], backwards: bool, hidden: Hidden, weights: Weights
) -> tuple[Tensor, Hidden]:
    """Run a layer in one direction, `FullLayer`."""
    outputs = []
    for input in reversed(steps) if backwards else steps:
        hidden = _step(input, hidden, weights)
        outputs.append(hidden[0])
    return torch.stack(outputs[::-1] if backwards else outputs), hidden


def _packed(
    data: Tensor, batch_sizes: Sequence[int], hidden: Hidden, weights: Weights
) -> tuple[Tensor, Hidden]:
    """Run a layer over sequences, the longest first, that end one by one: `PackedLayer`."""
    outputs, ended, offset = [], [], 0
    last = batch_sizes[0]
    for batch in batch_sizes:
        input = data.narrow(0, offset, batch)
        offset += batch
        if batch < last:
            ended.append(_rows(hidden, batch, last))
            hidden = _rows(hidden, 0, batch)
        last = batch
        hidden = _step(input, hidden, weights)
        outputs.append(hidden[0])
    ended.append(hidden)
    return torch.cat(outputs), _joined(torch.cat, ended[::-1])


def _packed_backwards(
    data: Tensor, batch_sizes: Sequence[int], first: Hidden, weights: Weights
) -> tuple[Tensor, Hidden]:
    """Run a layer from the ends of sequences, which set in one by one: `ReversedPackedLayer`."""
    outputs, offset, last = [], data.size(0), batch_sizes[-1]
    hidden = _rows(first, 0, last)
    for batch in reversed(batch_sizes):
        if batch > last:
            hidden = _joined(torch.cat, [hidden, _rows(first, last, batch)])
        input = data.narrow(0, offset - batch, batch)
        offset -= batch
        last = batch
        hidden = _step(input, hidden, weights)
        outputs.append(hidden[0])
    return torch.cat(outputs[::-1]), hidden


# ---- below autograd: what the kernels allocate, in their order ----


@handler("aten._thnn_fused_lstm_cell.default")
def fused_lstm_cell(
    dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Make the gates for the backward pass, h and c; source: `_thnn_fused_lstm_cell_cuda`."""
    input_gates, _, cx = args[:3]
    workspace = _empty(dispatcher, input_gates, input_gates.shape)
    hy = _empty(dispatcher, cx, cx.shape)
    cy = _empty(dispatcher, cx, cx.shape)
    return hy, cy, workspace


@handler("aten._thnn_fused_lstm_cell_backward_impl.default")
def fused_lstm_cell_backward(
    dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any
) -> tuple[Tensor | None, ...]:
    """Make gradients; source: `_thnn_fused_lstm_cell_backward_impl_cuda`."""
    grad_hy, grad_cy, cx, _, workspace, has_bias = args
    if grad_hy is None and grad_cy is None:
        return None, None, None
    gates = _empty(dispatcher, workspace, workspace.shape)
    grad_cx = _empty(dispatcher, cx, cx.shape)
    return gates, grad_cx, _sum(dispatcher, gates) if has_bias else None


@handler("aten._thnn_fused_gru_cell.default")
def fused_gru_cell(
    dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any
) -> tuple[Tensor, Tensor]:
    """Make the gates for the backward pass, and h; source: `_thnn_fused_gru_cell_cuda`."""
    hx = args[2]
    workspace = _empty(dispatcher, hx, [hx.size(0), hx.size(1) * _GRU_WORKSPACE_MULTIPLIER])
    return _empty(dispatcher, hx, hx.shape), workspace


@handler("aten._thnn_fused_gru_cell_backward.default")
def fused_gru_cell_backward(
    dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any
) -> tuple[Tensor | None, ...]:
    """Make gradients; source: `_thnn_fused_gru_cell_backward_cuda`."""
    grad_hy, workspace, has_bias = args
    shape = [workspace.size(0), workspace.size(1) // _GRU_WORKSPACE_MULTIPLIER * 3]
    gates = [_empty(dispatcher, workspace, shape) for _ in range(2)]
    grad_hx = _empty(dispatcher, grad_hy, grad_hy.shape)
    biases = [_sum(dispatcher, each) if has_bias else None for each in gates]
    return *gates, grad_hx, *biases


_GRU_WORKSPACE_MULTIPLIER = 5


def _empty(dispatcher: Dispatcher, like: Tensor, shape: Sequence[int]) -> Tensor:
    result: Tensor = dispatcher.run(aten.new_empty.default, (like, list(shape)), {})
    return result


def _sum(dispatcher: Dispatcher, gates: Tensor) -> Tensor:
    result: Tensor = dispatcher.run(aten.sum.dim_IntList, (gates, [0]), {})
    return result
