"""What is remembered is what the meta kernel infers; what shapes do not decide, it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import vramlab
from vramlab.gpu.core.inferred_shapes import InferredShapes
from vramlab.gpu.core.op_table import OPS

aten = torch.ops.aten

Make = Callable[[], torch.Tensor]


def zeros(*size: int, **options: Any) -> torch.Tensor:
    return torch.zeros(size, device="meta", **options)


OPERANDS: dict[str, Make] = {
    "float32": lambda: zeros(3, 4),
    "bfloat16": lambda: zeros(3, 4, dtype=torch.bfloat16),
    "scalar": lambda: zeros(),
    "empty": lambda: zeros(0, 4),
    "inside another": lambda: zeros(9)[3:6],
    "strange strides of length 1": lambda: torch.empty_strided((3, 1), (1, 7), device="meta"),
    "transposed": lambda: zeros(3, 4).t(),
    "channels last": lambda: zeros(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "every second": lambda: zeros(8)[::2],
    "expanded": lambda: zeros(1).expand(4),
    "complex": lambda: zeros(3, dtype=torch.complex64),
}
ELEMENTWISE = (
    aten.add.Tensor,
    aten.mul.Scalar,
    aten.addcmul.default,
    aten.lerp.Scalar,
    aten.neg.default,
    aten.sqrt.default,
    aten.add_.Tensor,
    aten.mul_.Scalar,
    aten.addcdiv_.default,
    aten.neg_.default,
)
ROWS, NORM, IMAGES = (2, 3, 4), (4,), (2, 3, 4, 4)

STEPS: dict[str, tuple[OpOverload, Callable[[], list[Any]]]] = {
    "layer norm": (
        aten.native_layer_norm.default,
        lambda: [zeros(*ROWS), [4], zeros(*NORM), zeros(*NORM), 1e-5],
    ),
    "layer norm without a weight": (
        aten.native_layer_norm.default,
        lambda: [zeros(*ROWS), [4], None, None, 1e-5],
    ),
    "layer norm, backward, input frozen": (
        aten.native_layer_norm_backward.default,
        lambda: [
            *[zeros(*ROWS), zeros(*ROWS), [4], zeros(2, 3, 1), zeros(2, 3, 1)],
            *[zeros(4), zeros(4), [False, True, True]],
        ],
    ),
    "batch norm": (
        aten.native_batch_norm.default,
        lambda: [zeros(*IMAGES), *(zeros(3) for _ in range(4)), True, 0.1, 1e-5],
    ),
    "softmax, backward": (
        aten._softmax_backward_data.default,
        lambda: [zeros(3, 4), zeros(3, 4), -1, torch.float32],
    ),
    "product with a bias": (
        aten.addmm.default,
        lambda: [zeros(5), zeros(3, 4), zeros(5, 4).t()],
    ),
    "concatenation": (aten.cat.default, lambda: [[zeros(2, 3), zeros(2, 5)], 1]),
    "sum": (aten.sum.dim_IntList, lambda: [zeros(3, 4), [0], True]),
    "list of tensors": (aten._foreach_sqrt.default, lambda: [[zeros(3), zeros(4, 2)]]),
    "lists in place": (aten._foreach_add_.List, lambda: [[zeros(3)], [zeros(3)]]),
    "zeros of that shape": (aten.zeros_like.default, lambda: [zeros(3, 4).t()]),
    "dropout": (aten.native_dropout.default, lambda: [zeros(3, 4), 0.5, True]),
    "flash attention": (
        aten._scaled_dot_product_flash_attention.default,
        lambda: [zeros(1, 2, 8, 16, dtype=torch.float16) for _ in range(3)],
    ),
}


class Asked:
    """A meta kernel that counts how often it is asked."""

    def __init__(self) -> None:
        self.times = 0
        self.shapes = InferredShapes()

    def __call__(
        self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self.shapes.infer(OPS[func], func, args, kwargs or {}, self._compute)

    def _compute(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.times += 1
        return func(*args, **kwargs)


@pytest.fixture
def asked() -> Asked:
    return Asked()


def described(result: Any) -> Any:
    """All that can be told of a result without values."""
    if isinstance(result, list | tuple):
        return type(result), [described(each) for each in result]
    if not isinstance(result, torch.Tensor):
        return result
    stride, storage_bytes = result.stride(), result.untyped_storage().nbytes()
    offset = result.storage_offset()
    return result.shape, stride, result.dtype, result.device, offset, storage_bytes


def arguments(func: OpOverload, make: Make) -> list[Any]:
    """Arguments for the op's schema: tensors by `make`, numbers where it wants numbers."""
    return [
        make() if str(argument.type) == "Tensor" else 0.5
        for argument in func._schema.arguments
        if not argument.kwarg_only
    ]


@pytest.mark.parametrize(
    ("func", "kind"),
    [
        (func, kind)
        for func in ELEMENTWISE
        for kind in OPERANDS
        if not (kind == "expanded" and func._schema.is_mutable)  # PyTorch writes nowhere twice
    ],
    ids=str,
)
def test_the_answer_is_the_meta_kernels(asked: Asked, func: OpOverload, kind: str) -> None:
    expected = described(func(*arguments(func, OPERANDS[kind])))
    for _ in range(3):
        args = arguments(func, OPERANDS[kind])
        result = asked(func, args)
        assert described(result) == expected
        assert (result is args[0]) == func._schema.is_mutable
    assert asked.times == 1


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_a_training_are_asked_for_once(asked: Asked, name: str) -> None:
    func, make = STEPS[name]
    expected = described(func(*make()))
    assert [described(asked(func, make())) for _ in range(3)] == [expected] * 3
    assert asked.times == 1


@pytest.mark.parametrize(
    ("func", "one", "other"),
    [
        (aten.add.Tensor, [zeros(3), zeros(3)], [zeros(3), zeros(1)]),
        (aten.add.Tensor, [zeros(3), zeros(3)], [zeros(3), zeros(3, dtype=torch.float64)]),
        (aten.add.Tensor, [zeros(3, 4), zeros(3, 4)], [zeros(3, 4), zeros(4, 3).t()]),
        (aten.mul.Scalar, [zeros(3, dtype=torch.int64), 2], [zeros(3, dtype=torch.int64), 2.0]),
        (aten.mul.Scalar, [zeros(3, dtype=torch.bool), 1], [zeros(3, dtype=torch.bool), True]),
        (aten.mul.Scalar, [zeros(3), 1.0], [zeros(3), 1j]),
        (aten.native_dropout.default, [zeros(3), 0.5, True], [zeros(3), 0.0, True]),
        (aten.sum.dim_IntList, [zeros(3, 4), [0]], [zeros(3, 4), [1]]),
        (
            aten.upsample_nearest2d.vec,
            [zeros(1, 1, 4, 4), None, [2.0, 2.0]],
            [zeros(1, 1, 4, 4), None, [3.0, 3.0]],
        ),
    ],
    ids=[
        *("shape", "dtype", "strides", "kind of number", "bool", "complex", "no dropout"),
        *("dimension", "scales"),
    ],
)
def test_what_makes_another_result_is_asked_for_anew(
    asked: Asked, func: OpOverload, one: list[Any], other: list[Any]
) -> None:
    for args in (one, other, one):
        assert described(asked(func, args)) == described(func(*args))
    assert asked.times == 2


def test_the_default_dtype_counts(asked: Asked) -> None:
    whole = zeros(3, dtype=torch.int64)
    assert asked(aten.mul.Scalar, [whole, 0.5]).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert asked(aten.mul.Scalar, [whole, 0.5]).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


# Made in the test: PyTorch 2.11 and 2.12 warn of sparse tensors.
ASKED_EACH_TIME: dict[str, tuple[OpOverload, Callable[[], list[Any]]]] = {
    "view": (aten.view.default, lambda: [zeros(3, 4), [12]]),
    "hidden view": (aten._unsafe_view.default, lambda: [zeros(3, 4), [12]]),
    "strides in place": (aten.transpose_.default, lambda: [zeros(3, 4), 0, 1]),
    "number of the host": (aten.mul.Tensor, lambda: [zeros(3), torch.tensor(2.0)]),
    "host": (aten.neg.default, lambda: [torch.zeros(3)]),
    "sparse": (
        aten.clone.default,
        lambda: [torch.sparse_coo_tensor(size=(3, 3), device="meta", check_invariants=False)],
    ),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name", ASKED_EACH_TIME)
def test_what_shapes_do_not_decide_is_asked_each_time(asked: Asked, name: str) -> None:
    func, make = ASKED_EACH_TIME[name]
    for _ in range(2):
        asked(func, make())
    assert asked.times == 2


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.fixture(params=["before", "after"])
def seen(request: pytest.FixtureRequest) -> Iterator[Seen]:
    """A dispatch mode that was entered before or after the GPU was attached."""
    if request.param == "before":
        with Seen() as seen, vramlab.VirtualGPU("T4"):
            yield seen
    else:
        with vramlab.VirtualGPU("T4"), Seen() as seen:
            yield seen


def test_another_mode_sees_every_op(seen: Seen) -> None:
    x = torch.zeros(3, device="cuda")
    seen.ops.clear()
    for _ in range(2):
        _ = x * 2
    assert seen.ops == ["aten.mul.Tensor"] * 2


def test_what_traces_below_sees_the_op_itself() -> None:
    with vramlab.VirtualGPU("T4"):
        x = torch.zeros(3, device="cuda")
        _ = x * 2
        graph = make_fx(lambda x: x * 2)(x).graph
        assert aten.mul.Tensor in {node.target for node in graph.nodes}


def test_a_gpu_stands_in_for_another() -> None:
    with vramlab.VirtualGPU("T4"):
        with vramlab.VirtualGPU("A100-40GB"):
            assert torch._C._len_torch_dispatch_stack() == 1
            x = torch.zeros(1024, device="cuda")
            y = x * 2  # 4096 B each
            assert torch.cuda.memory_allocated() == 2 * 4096
            del x, y
        assert torch.cuda.memory_allocated() == 0


def test_memory_is_counted_each_time() -> None:
    with vramlab.VirtualGPU("T4"):
        x = torch.zeros(1024, device="cuda")
        kept = [x * 2 for _ in range(3)]  # 4096 B more each
        kept[0] += 1
        assert torch.cuda.memory_allocated() == 4 * 4096
        with pytest.raises(RuntimeError, match="size of tensor a"):
            x + torch.zeros(1000, device="cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("op", [aten.mul.Tensor, aten.div.Tensor, aten.masked_fill.Scalar])
def test_an_expanded_operand_does_not_decide_the_layout(
    op: OpOverload, dtype: torch.dtype, gpu: vramlab.VirtualGPU
) -> None:
    """TensorIterator passes strides of 0 over: PyTorch's own CUDA code gives these strides."""
    expanded = torch.zeros((), dtype=dtype, device="cuda").expand(3, 4)
    if op is aten.masked_fill.Scalar:
        assert op(expanded, expanded != 0, 1).stride() == (4, 1)
        rows = torch.zeros(4, 1, dtype=dtype, device="cuda").expand(4, 3).t()
        assert rows.contiguous().stride() == (4, 1)
        return
    by_columns = torch.zeros(4, 3, dtype=dtype, device="cuda").t()
    assert op(expanded, by_columns).stride() == (1, 3)
    assert op(by_columns, expanded).stride() == (1, 3)
