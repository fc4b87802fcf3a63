"""Single calls of ops that have a rule (`vramlab.kernels`), so that a recording confirms each rule.

For each rule there are calls with operands of several sizes, dtypes and layouts: some on each side
of every threshold that the rule knows. Operands are made before the op runs, so that the stage of
a call shows what the op alone takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vramlab.gpu.torch_internals import clear_cublas_workspaces
from vramlab.measure import Result, Stages

F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
I64, I32, BOOL = torch.int64, torch.int32, torch.bool

aten = torch.ops.aten

Operand = Callable[[], Any]
"""Makes an operand on the current GPU."""


@dataclass(frozen=True)
class OpCall:
    """One call.

    Attributes:
        label: unique among the calls of its rule: the op and what is special about its operands.
        function: the op, or a function that calls it once.
        operands: what it is called with; anything that is no function is passed as it is.
    """

    label: str
    function: Callable[..., Any]
    operands: tuple[Any, ...]


_MAKERS: dict[str, Callable[[], Iterator[OpCall]]] = {}


def calls_of(rule: str) -> tuple[OpCall, ...]:
    """The calls that ask a rule.

    Args:
        rule: the first of the rule's ops, such as 'aten.mm.default'.

    Raises:
        KeyError: there are none of that rule.
    """
    return tuple(_MAKERS[rule]())


def rules_called() -> tuple[str, ...]:
    """The rules that there are calls of, by their first op."""
    return tuple(_MAKERS)


def run(rule: str) -> Result:
    """Make every call of a rule on the attached GPU, each a stage, on an empty cache.

    Each call that needs a workspace of cuBLAS takes it anew. A call that PyTorch refuses is a
    stage with an error.
    """
    torch.manual_seed(0)
    stages = Stages(rule)
    for call in calls_of(rule):
        operands = [made() if callable(made) else made for made in call.operands]
        clear_cublas_workspaces()
        torch.cuda.empty_cache()
        result = None
        with suppress(RuntimeError), stages.stage(call.label):
            result = call.function(*operands)
        del result, operands
    return stages.result()


def _asks(rule: str) -> Callable[[Callable[[], Iterator[OpCall]]], None]:
    def register(maker: Callable[[], Iterator[OpCall]]) -> None:
        _MAKERS[rule] = maker

    return register


def _call(function: Callable[..., Any], *operands: Any, also: str = "") -> OpCall:
    """A call, named by its op and operands."""
    name = str(function).removeprefix("aten.").removesuffix(".default")
    told = [_told(operand) for operand in operands]
    return OpCall(f"{name}({', '.join(told)}){also}", function, operands)


def _told(operand: Any) -> str:
    if isinstance(operand, torch.dtype):
        return str(operand).removeprefix("torch.")
    return str(operand)


@dataclass(frozen=True)
class Zeros:
    """Makes a tensor of zeros.

    Attributes:
        shape: its shape.
        dtype: its dtype.
        layout: 'contiguous'; 'transposed' in its last two dimensions; 'channels last'; 'apart':
            every second element of its last dimension; 'expanded' along its first dimension.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype = F32
    layout: str = "contiguous"

    def __call__(self) -> Tensor:
        *lead, last = self.shape if self.shape else (1,)
        if self.layout == "transposed":
            before, rows = lead[:-1], lead[-1]
            return self._zeros(*before, last, rows).transpose(-1, -2)
        if self.layout == "channels last":
            return self._zeros(*self.shape).contiguous(memory_format=torch.channels_last)
        if self.layout == "apart":
            return self._zeros(*lead, 2 * last)[..., ::2]
        if self.layout == "expanded":
            return self._zeros(1, *self.shape[1:]).expand(self.shape)
        return self._zeros(*self.shape)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device="cuda")

    def __str__(self) -> str:
        kind = {F32: "f32", F16: "f16", BF16: "bf16", F64: "f64", I64: "i64", I32: "i32"}
        text = f"{kind.get(self.dtype, str(self.dtype)[6:])}[{', '.join(map(str, self.shape))}]"
        return text if self.layout == "contiguous" else f"{text} {self.layout}"

    __repr__ = __str__


@dataclass(frozen=True)
class Ids:
    """Makes int64 numbers from 0 up to `below`, each equally likely."""

    shape: tuple[int, ...]
    below: int

    def __call__(self) -> Tensor:
        return torch.randint(self.below, self.shape).to("cuda")

    def __str__(self) -> str:
        return f"ids[{', '.join(map(str, self.shape))}] below {self.below}"

    __repr__ = __str__


@dataclass(frozen=True)
class Several:
    """Makes a list of tensors."""

    each: tuple[Zeros, ...]

    def __call__(self) -> list[Tensor]:
        return [make() for make in self.each]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.each))}]"

    __repr__ = __str__


def _z(*shape: int, dtype: torch.dtype = F32, layout: str = "contiguous") -> Zeros:
    return Zeros(shape, dtype, layout)


# Matrix products.

_PRODUCTS = ((256, 512, 1024), (1, 512, 1024), (512, 1, 64), (257, 511, 1023), (4096, 4096, 4096))


@_asks("aten.mm.default")
def _mm() -> Iterator[OpCall]:
    for dtype in (F32, BF16, F16, F64):
        for m, k, n in _PRODUCTS:
            yield _call(aten.mm.default, _z(m, k, dtype=dtype), _z(k, n, dtype=dtype))
        turned = _z(512, 1024, dtype=dtype, layout="transposed")
        apart = _z(512, 1024, dtype=dtype, layout="apart")
        yield _call(aten.mm.default, _z(256, 512, dtype=dtype), turned)
        yield _call(aten.mm.default, _z(256, 512, dtype=dtype), apart)
        yield _call(aten.mm.default, _z(256, 512, dtype=dtype, layout="apart"), turned)
        yield _call(aten.mm.default, _z(256, 512, dtype=dtype, layout="expanded"), turned)


@_asks("aten.addmm.default")
def _addmm() -> Iterator[OpCall]:
    for dtype in (F32, BF16, F16, F64):
        for m, k, n in (*_PRODUCTS, (256, 512, 1), (1, 1, 1), (2, 64, 64), (64, 1, 64)):
            for bias in (_z(n, dtype=dtype), _z(m, n, dtype=dtype)):
                for layout in ("contiguous", "transposed"):
                    right = _z(k, n, dtype=dtype, layout=layout)
                    yield _call(aten.addmm.default, bias, _z(m, k, dtype=dtype), right)
        yield _call(
            aten.addmm.default,
            _z(1024, dtype=dtype),
            _z(256, 512, dtype=dtype, layout="apart"),
            _z(512, 1024, dtype=dtype),
        )


@_asks("aten._addmm_activation.default")
def _addmm_activation() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for m, k, n in ((256, 512, 1024), (1, 512, 1024)):
            operands = _z(n, dtype=dtype), _z(m, k, dtype=dtype), _z(k, n, dtype=dtype)
            yield _call(aten._addmm_activation.default, *operands)


@_asks("aten._int_mm.default")
def _int_mm() -> Iterator[OpCall]:
    left, right = _z(64, 128, dtype=torch.int8), _z(128, 256, dtype=torch.int8)
    yield _call(aten._int_mm.default, left, right)


_BATCHES = ((8, 64, 128, 64), (1, 64, 128, 64), (8, 1, 128, 64), (16, 512, 512, 64))


@_asks("aten.bmm.default")
def _bmm() -> Iterator[OpCall]:
    for dtype in (F32, BF16, F16):
        for b, m, k, n in _BATCHES:
            for layout in ("contiguous", "transposed", "apart", "expanded"):
                right = _z(b, k, n, dtype=dtype, layout=layout)
                yield _call(aten.bmm.default, _z(b, m, k, dtype=dtype), right)
        left = _z(8, 64, 128, dtype=dtype, layout="apart")
        yield _call(aten.bmm.default, left, _z(8, 128, 64, dtype=dtype))


@_asks("aten.baddbmm.default")
def _baddbmm() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for b, m, k, n in _BATCHES:
            right = _z(b, k, n, dtype=dtype)
            left = _z(b, m, k, dtype=dtype)
            yield _call(aten.baddbmm.default, _z(b, m, n, dtype=dtype), left, right)


@_asks("aten.mv.default")
def _mv() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for layout in ("contiguous", "transposed", "apart"):
            matrix = _z(1024, 512, dtype=dtype, layout=layout)
            yield _call(aten.mv.default, matrix, _z(512, dtype=dtype))
        yield _call(
            aten.mv.default, _z(1024, 512, dtype=dtype), _z(512, dtype=dtype, layout="expanded")
        )


@_asks("aten.addmv.default")
def _addmv() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for layout in ("contiguous", "apart"):
            matrix = _z(1024, 512, dtype=dtype, layout=layout)
            yield _call(aten.addmv.default, _z(1024, dtype=dtype), matrix, _z(512, dtype=dtype))


@_asks("aten.dot.default")
def _dot() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        yield _call(aten.dot.default, _z(4096, dtype=dtype), _z(4096, dtype=dtype))


# Reductions.

_REDUCED = (
    (1000,),
    (65536,),
    (1 << 24,),
    (10240, 1024),
    (1024, 10240),
    (33, 1 << 20),
    (1 << 20, 33),
    (4096, 30522),
    (5, 7, 11, 4096),
)


def _whole(op: Any, dtypes: tuple[torch.dtype, ...]) -> Iterator[OpCall]:
    for dtype in dtypes:
        for shape in _REDUCED:
            yield _call(op, _z(*shape, dtype=dtype))
        yield _call(op, _z(10240, 1024, dtype=dtype, layout="transposed"))
        yield _call(op, _z(10240, 1024, dtype=dtype, layout="apart"))


def _along(
    op: Any, dtypes: tuple[torch.dtype, ...], *rest: Any, listed: bool = True
) -> Iterator[OpCall]:
    for dtype in dtypes:
        for shape in _REDUCED:
            for dim in range(len(shape)):
                yield _call(op, _z(*shape, dtype=dtype), [dim] if listed else dim, *rest)
        if listed:
            yield _call(op, _z(5, 7, 11, 4096, dtype=dtype), [0, 2], *rest)
        rows_apart = _z(10240, 1024, dtype=dtype, layout="apart")
        yield _call(op, rows_apart, [0] if listed else 0, *rest)


@_asks("aten.sum.default")
def _sum() -> Iterator[OpCall]:
    yield from _whole(aten.sum.default, (F32, F16, BF16, I64, I32, BOOL))


@_asks("aten.sum.dim_IntList")
def _sum_dim() -> Iterator[OpCall]:
    yield from _along(aten.sum.dim_IntList, (F32, F16, BF16, I64, BOOL))
    yield from _along(aten.mean.dim, (F32, BF16))


@_asks("aten.mean.default")
def _mean() -> Iterator[OpCall]:
    yield from _whole(aten.mean.default, (F32, BF16))


@_asks("aten.nansum.default")
def _nansum() -> Iterator[OpCall]:
    yield from _whole(aten.nansum.default, (F32, BF16))


@_asks("aten.prod.default")
def _prod() -> Iterator[OpCall]:
    yield from _whole(aten.prod.default, (F32, I32))


@_asks("aten.prod.dim_int")
def _prod_dim() -> Iterator[OpCall]:
    yield from _along(aten.prod.dim_int, (F32, I32), listed=False)


@_asks("aten.amax.default")
def _amax() -> Iterator[OpCall]:
    yield from _along(aten.amax.default, (F32, BF16, I64))


@_asks("aten.max.default")
def _max() -> Iterator[OpCall]:
    yield from _whole(aten.max.default, (F32, BF16, I64))


@_asks("aten.max.dim")
def _max_dim() -> Iterator[OpCall]:
    yield from _along(aten.max.dim, (F32, BF16), listed=False)


@_asks("aten.argmax.default")
def _argmax() -> Iterator[OpCall]:
    yield from _whole(aten.argmax.default, (F32, BF16))
    yield from _along(aten.argmax.default, (F32, BF16), listed=False)


@_asks("aten.any.default")
def _any() -> Iterator[OpCall]:
    yield from _whole(aten.any.default, (BOOL, F32))
    yield from _along(aten.all.dim, (BOOL, F32), listed=False)


@_asks("aten.var.correction")
def _var() -> Iterator[OpCall]:
    yield from _along(aten.var.correction, (F32, BF16, F64))
    yield from _along(aten.var_mean.correction, (F32,))


@_asks("aten.linalg_vector_norm.default")
def _vector_norm() -> Iterator[OpCall]:
    yield from _whole(aten.linalg_vector_norm.default, (F32, BF16))
    for shape in _REDUCED:
        yield _call(aten.linalg_vector_norm.default, _z(*shape), 2.0, [0])


@_asks("aten.count_nonzero.default")
def _count_nonzero() -> Iterator[OpCall]:
    yield from _whole(aten.count_nonzero.default, (F32, BOOL))


@_asks("aten.logsumexp.default")
def _logsumexp() -> Iterator[OpCall]:
    yield from _along(aten.logsumexp.default, (F32, BF16))


@_asks("aten._foreach_norm.Scalar")
def _foreach_norm() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for sizes in ((1000,), (65536, 1), (1 << 20, 1 << 22, 17), (65537,) * 40):
            listed = Several(tuple(_z(size, dtype=dtype) for size in sizes))
            told = f" of {len(sizes)} {dtype}, the largest of {max(sizes)}"
            yield OpCall(f"_foreach_norm{told}", aten._foreach_norm.Scalar, (listed, 2))


# Sorting and running sums.


@_asks("aten.sort.default")
def _sort() -> Iterator[OpCall]:
    shapes = (
        (1000,),
        (4096,),
        (4097,),
        (1 << 20,),
        (8, 5000),
        (200, 5000),
        (1000, 64),
        (2, 1 << 20),
    )
    for dtype in (F32, I64, F64, I32):
        for shape in shapes:
            yield _call(aten.sort.default, _z(*shape, dtype=dtype))
        yield _call(aten.sort.default, _z(5000, 8, dtype=dtype), 0)


@_asks("aten.cumsum.default")
def _cumsum() -> Iterator[OpCall]:
    for dtype in (I64, F32, I32, BF16):
        for shape in (
            (8,),
            (512,),
            (1024,),
            (4096,),
            (5000,),
            (30000,),
            (1 << 20,),
            (8, 512),
            (1, 512),
        ):
            yield _call(aten.cumsum.default, _z(*shape, dtype=dtype), -1)
        yield _call(aten.cumsum.default, _z(512, 8, dtype=dtype), 0)
    yield _call(aten.cumsum.default, _z(8, 512, dtype=BOOL), -1)


# Indexing and embeddings.


@_asks("aten.embedding.default")
def _embedding() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for ids in (Ids((4096,), 1000), Ids((32, 128), 1000), _z(32, 128, dtype=I64)):
            yield _call(aten.embedding.default, _z(1000, 768, dtype=dtype), ids)
        for layout in ("expanded", "transposed", "apart"):
            ids = _z(32, 128, dtype=I64, layout=layout)
            yield _call(aten.embedding.default, _z(1000, 768, dtype=dtype), ids)


@_asks("aten.embedding_dense_backward.default")
def _embedding_backward() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for count in (1000, 3072, 3073, 4096, 8192, 16384):
            for width in (64, 768):
                gradient = _z(count, width, dtype=dtype)
                yield _call(
                    aten.embedding_dense_backward.default,
                    gradient,
                    Ids((count,), 30522),
                    30522,
                    -1,
                    False,
                )
        yield _call(
            aten.embedding_dense_backward.default,
            _z(8192, 768, dtype=dtype),
            Ids((8192,), 2),
            2,
            -1,
            False,
        )


@_asks("aten.index.Tensor")
def _index() -> Iterator[OpCall]:
    def index(self: Tensor, *ids: Tensor) -> Any:
        return aten.index.Tensor(self, list(ids))

    for ids in (Ids((64,), 100), Ids((4096,), 100), _z(64, dtype=I32)):
        yield OpCall(f"index by {ids}", index, (_z(1000, 512), ids))
    pair = Ids((64, 1), 100), Ids((1, 64), 100)
    yield OpCall("index by a column and a row", index, (_z(1000, 512), *pair))


@_asks("aten.index_put.default")
def _index_put() -> Iterator[OpCall]:
    def put(self: Tensor, ids: Tensor, values: Tensor, accumulate: bool) -> Any:
        return aten.index_put_.default(self, [ids], values, accumulate)

    for count in (64, 4096, 100_000):
        for accumulate in (False, True):
            values = _z(count, 64)
            text = f"index_put_ of {count} rows{', adding' if accumulate else ''}"
            yield OpCall(text, put, (_z(1000, 64), Ids((count,), 1000), values, accumulate))
            expanded = _z(count, 64, layout="expanded")
            operands = (_z(1000, 64), Ids((count,), 1000), expanded, accumulate)
            yield OpCall(f"{text}, one row", put, operands)


# Losses and activations.


@_asks("aten.mse_loss.default")
def _mse() -> Iterator[OpCall]:
    for op in (aten.mse_loss.default, aten.smooth_l1_loss.default):
        for dtype in (F32, BF16):
            for shape in ((1000,), (4096, 1024), (1 << 24,)):
                for reduction in (0, 1, 2):
                    yield _call(op, _z(*shape, dtype=dtype), _z(*shape, dtype=dtype), reduction)


@_asks("aten.huber_loss.default")
def _huber() -> Iterator[OpCall]:
    for shape in ((1000,), (4096, 1024), (1 << 24,)):
        for reduction in (0, 1, 2):
            yield _call(aten.huber_loss.default, _z(*shape), _z(*shape), reduction)


@_asks("aten.binary_cross_entropy.default")
def _binary() -> Iterator[OpCall]:
    for shape in ((1000,), (4096, 1024), (1 << 24,)):
        for reduction in (0, 1, 2):
            op = aten.binary_cross_entropy.default
            yield _call(op, _z(*shape), _z(*shape), None, reduction)


@_asks("aten.binary_cross_entropy_with_logits.default")
def _binary_with_logits() -> Iterator[OpCall]:
    op = aten.binary_cross_entropy_with_logits.default
    for shape in ((1000,), (4096, 1024), (1 << 24,)):
        for reduction in (0, 1, 2):
            yield _call(op, _z(*shape), _z(*shape), None, None, reduction)
    yield _call(op, _z(4096, 1024), _z(4096, 1024), None, _z(1024), 1)
    yield _call(op, _z(4096, 1024), _z(4096, 1024), _z(4096, 1024), None, 1)


@_asks("aten.log_sigmoid_forward.default")
def _log_sigmoid() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        yield _call(aten.log_sigmoid_forward.default, _z(4096, 1024, dtype=dtype))


@_asks("aten._softmax.default")
def _softmax() -> Iterator[OpCall]:
    for op in (aten._softmax.default, aten._log_softmax.default):
        for dtype in (F32, BF16):
            for layout in ("contiguous", "transposed", "apart"):
                yield _call(op, _z(4096, 1024, dtype=dtype, layout=layout), -1, False)
            yield _call(op, _z(4096, 1024, dtype=dtype), 0, False)
        yield _call(op, _z(4096, 1024, dtype=F16), -1, True)


@_asks("aten._softmax_backward_data.default")
def _softmax_backward() -> Iterator[OpCall]:
    for op in (aten._softmax_backward_data.default, aten._log_softmax_backward_data.default):
        for dtype in (F32, BF16):
            output = _z(4096, 1024, dtype=dtype)
            for layout in ("contiguous", "transposed", "expanded"):
                gradient = _z(4096, 1024, dtype=dtype, layout=layout)
                yield _call(op, gradient, output, -1, dtype)


@_asks("aten.nll_loss_forward.default")
def _nll() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for shape in ((1000, 10), (4096, 30522)):
            for reduction in (0, 1, 2):
                targets = Ids((shape[0],), 10)
                yield _call(
                    aten.nll_loss_forward.default,
                    _z(*shape, dtype=dtype),
                    targets,
                    None,
                    reduction,
                    -100,
                )
            yield _call(
                aten.nll_loss_backward.default,
                _z(dtype=dtype),
                _z(*shape, dtype=dtype),
                Ids((shape[0],), 10),
                None,
                1,
                -100,
                _z(dtype=dtype),
            )


@_asks("aten.native_dropout.default")
def _dropout() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for shape in ((1000,), (4096, 1024)):
            yield _call(aten.native_dropout.default, _z(*shape, dtype=dtype), 0.1, True)


@_asks("aten.pow.Scalar")
def _pow() -> Iterator[OpCall]:
    for base in (10000.0, 2, 1.0):
        yield _call(aten.pow.Scalar, base, _z(1000))


# Normalization.

_ROWS = ((4096, 768), (65536, 64), (65537, 64), (131072, 128), (100, 30000), (33, 7))


@_asks("aten.native_layer_norm.default")
def _layer_norm() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for rows, width in _ROWS:
            gain = _z(width, dtype=dtype)
            op = aten.native_layer_norm.default
            yield _call(op, _z(rows, width, dtype=dtype), [width], gain, gain, 1e-5)
        turned = _z(4096, 768, dtype=dtype, layout="transposed")
        gain = _z(768, dtype=dtype)
        yield _call(aten.native_layer_norm.default, turned, [768], gain, gain, 1e-5)


@_asks("aten.native_layer_norm_backward.default")
def _layer_norm_backward() -> Iterator[OpCall]:
    op = aten.native_layer_norm_backward.default
    for dtype in (F32, BF16):
        for rows, width in _ROWS:
            x, gain, number = _z(rows, width, dtype=dtype), _z(width, dtype=dtype), _z(rows, 1)
            yield _call(op, x, x, [width], number, number, gain, gain, [True, True, True])
        x, gain, number = _z(4096, 768, dtype=dtype), _z(768, dtype=dtype), _z(4096, 1)
        for layout in ("transposed", "expanded"):
            gradient = _z(4096, 768, dtype=dtype, layout=layout)
            yield _call(op, gradient, x, [768], number, number, gain, gain, [True, True, True])


@_asks("aten._fused_rms_norm.default")
def _rms_norm() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for rows, width in _ROWS:
            gain = _z(width, dtype=dtype)
            op = aten._fused_rms_norm.default
            yield _call(op, _z(rows, width, dtype=dtype), [width], gain, 1e-5)


@_asks("aten._fused_rms_norm_backward.default")
def _rms_norm_backward() -> Iterator[OpCall]:
    op = aten._fused_rms_norm_backward.default
    for dtype in (F32, BF16):
        for rows, width in _ROWS:
            x, gain, number = _z(rows, width, dtype=dtype), _z(width, dtype=dtype), _z(rows, 1)
            yield _call(op, x, x, [width], number, gain, [True, True])


_IMAGES = ((16, 64, 56, 56), (2, 32, 7, 7), (1, 8, 512, 512))


@_asks("aten.native_group_norm.default")
def _group_norm() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for n, c, h, w in _IMAGES:
            gain = _z(c, dtype=dtype)
            x = _z(n, c, h, w, dtype=dtype)
            yield _call(aten.native_group_norm.default, x, gain, gain, n, c, h * w, 8, 1e-5)


@_asks("aten.native_group_norm_backward.default")
def _group_norm_backward() -> Iterator[OpCall]:
    op = aten.native_group_norm_backward.default
    for dtype in (F32, BF16):
        for n, c, h, w in _IMAGES:
            x, gain = _z(n, c, h, w, dtype=dtype), _z(c, dtype=dtype)
            number = _z(n, 8, dtype=dtype)
            mask = [True, True, True]
            yield _call(op, x, x, number, number, gain, n, c, h * w, 8, mask)


# Pooling and convolutions.


@_asks("aten.max_pool2d_with_indices.default")
def _pooling() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for layout in ("contiguous", "channels last", "transposed", "apart"):
            x = _z(16, 64, 56, 56, dtype=dtype, layout=layout)
            yield _call(aten.max_pool2d_with_indices.default, x, [2, 2], [2, 2])
            yield _call(aten.avg_pool2d.default, x, [2, 2], [2, 2])


@_asks("aten.max_pool2d_with_indices_backward.default")
def _pooling_backward() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        x = _z(16, 64, 56, 56, dtype=dtype)
        for layout in ("contiguous", "channels last", "transposed"):
            gradient = _z(16, 64, 28, 28, dtype=dtype, layout=layout)
            indices = _z(16, 64, 28, 28, dtype=I64)
            window = [2, 2], [2, 2], [0, 0]
            op = aten.max_pool2d_with_indices_backward.default
            yield _call(op, gradient, x, *window, [1, 1], False, indices)
            op = aten.avg_pool2d_backward.default
            yield _call(op, gradient, x, *window, False, True, None)


@_asks("aten._adaptive_avg_pool2d.default")
def _adaptive_pooling() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for layout in ("contiguous", "channels last", "transposed"):
            for side in (7, 3):
                x = _z(16, 64, 56, 56, dtype=dtype, layout=layout)
                yield _call(aten._adaptive_avg_pool2d.default, x, [side, side])


@_asks("aten._adaptive_avg_pool2d_backward.default")
def _adaptive_pooling_backward() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for layout in ("contiguous", "channels last", "transposed"):
            gradient = _z(16, 64, 7, 7, dtype=dtype, layout=layout)
            x = _z(16, 64, 56, 56, dtype=dtype)
            yield _call(aten._adaptive_avg_pool2d_backward.default, gradient, x)


_CONVOLUTIONS = (
    # images, channels, side, filters, kernel, stride, groups
    (16, 3, 224, 64, 3, 1, 1),
    (16, 64, 56, 64, 3, 1, 1),
    (16, 64, 56, 256, 1, 1, 1),
    (16, 256, 14, 512, 3, 2, 1),
    (16, 96, 56, 96, 7, 1, 96),
    (16, 3, 224, 768, 16, 16, 1),
)


@_asks("aten.convolution.default")
def _convolution() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for n, c, side, filters, kernel, stride, groups in _CONVOLUTIONS:
            for layout in ("contiguous", "channels last"):
                x = _z(n, c, side, side, dtype=dtype, layout=layout)
                weight = _z(filters, c // groups, kernel, kernel, dtype=dtype)
                pad = 0 if kernel == stride else kernel // 2
                rest = [stride, stride], [pad, pad], [1, 1], False, [0, 0], groups
                yield _call(aten.convolution.default, x, weight, _z(filters, dtype=dtype), *rest)


@_asks("aten.convolution_backward.default")
def _convolution_backward() -> Iterator[OpCall]:
    op = aten.convolution_backward.default
    for dtype in (F32, BF16):
        for n, c, side, filters, kernel, stride, groups in _CONVOLUTIONS:
            pad = 0 if kernel == stride else kernel // 2
            out = (side + 2 * pad - kernel) // stride + 1
            gradient = _z(n, filters, out, out, dtype=dtype)
            x = _z(n, c, side, side, dtype=dtype)
            weight = _z(filters, c // groups, kernel, kernel, dtype=dtype)
            rest = [stride, stride], [pad, pad], [1, 1], False, [0, 0], groups
            yield _call(op, gradient, x, weight, [filters], *rest, [True, True, True])


# Attention.

_HEADS = (
    # batch, heads, queries, keys, head size
    (8, 12, 512, 512, 64),
    (1, 12, 1, 1024, 64),
    (2, 16, 333, 333, 64),
    (2, 8, 1024, 1024, 128),
    (1, 4, 128, 128, 160),
    (1, 4, 256, 256, 40),
)
_SIXTEEN_BITS = (F16, BF16)


def _attention_forward(op: Any, dtype: torch.dtype, *rest: Any) -> Iterator[OpCall]:
    for batch, heads, queries, keys, size in _HEADS:
        query = _z(batch, heads, queries, size, dtype=dtype)
        other = _z(batch, heads, keys, size, dtype=dtype)
        yield _call(op, query, other, other, *rest)


@_asks("aten._scaled_dot_product_flash_attention.default")
def _flash() -> Iterator[OpCall]:
    op = aten._scaled_dot_product_flash_attention.default
    for dtype in _SIXTEEN_BITS:
        yield from _attention_forward(op, dtype, 0.0, False)
        yield from _attention_forward(op, dtype, 0.0, True)
        yield from _attention_forward(op, dtype, 0.1, False)


@_asks("aten._scaled_dot_product_efficient_attention.default")
def _efficient() -> Iterator[OpCall]:
    op = aten._scaled_dot_product_efficient_attention.default
    for dtype in (F32, *_SIXTEEN_BITS):
        yield from _attention_forward(op, dtype, None, True, 0.0, False)
        yield from _attention_forward(op, dtype, None, True, 0.1, True)


def _through(forward: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """The backward pass of an attention op, by autograd, for one GPU thread and handle."""

    def both(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = forward(query, key, value)[0]
        (gradient,) = torch.autograd.grad(output, query, torch.ones_like(output))
        return gradient

    both.__name__ = backend
    return both


@dataclass(frozen=True)
class _Leaf:
    """Makes a tensor that wants a gradient."""

    made: Zeros

    def __call__(self) -> Tensor:
        return self.made().requires_grad_()

    def __str__(self) -> str:
        return str(self.made)

    __repr__ = __str__


def _attention_backward(
    forward: Callable[..., Any], name: str, dtype: torch.dtype
) -> Iterator[OpCall]:
    for batch, heads, queries, keys, size in _HEADS:
        query = _z(batch, heads, queries, size, dtype=dtype)
        other = _z(batch, heads, keys, size, dtype=dtype)
        operands = tuple(map(_Leaf, (query, other, other)))
        yield OpCall(f"{name}, backward ({query}, {other})", _through(forward, name), operands)


@_asks("aten._scaled_dot_product_flash_attention_backward.default")
def _flash_backward() -> Iterator[OpCall]:
    def flash(query: Tensor, key: Tensor, value: Tensor) -> Any:
        return aten._scaled_dot_product_flash_attention.default(query, key, value, 0.0, True)

    for dtype in _SIXTEEN_BITS:
        yield from _attention_backward(flash, "flash", dtype)


@_asks("aten._scaled_dot_product_efficient_attention_backward.default")
def _efficient_backward() -> Iterator[OpCall]:
    def efficient(query: Tensor, key: Tensor, value: Tensor) -> Any:
        op = aten._scaled_dot_product_efficient_attention.default
        return op(query, key, value, None, True, 0.0, True)

    for dtype in (F32, *_SIXTEEN_BITS):
        yield from _attention_backward(efficient, "efficient", dtype)


@_asks("aten._safe_softmax.default")
def _safe_softmax() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for shape in ((8, 12, 512, 512), (1, 1, 33, 77)):
            yield _call(aten._safe_softmax.default, _z(*shape, dtype=dtype), -1)
