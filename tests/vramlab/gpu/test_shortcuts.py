"""Shortcuts answer exactly what the meta kernel answers, and leave to it what is not plain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import vramlab
from vramlab.gpu.core.op_table import OPS
from vramlab.gpu.ops import fast_meta

aten = torch.ops.aten

FAST = {func: spec.fast_answer for func, spec in OPS.having("fast_answer") if spec.fast_answer}
IN_PLACE = [func for func in FAST if str(func) in fast_meta.IN_PLACE]
NEW = [func for func in FAST if str(func) in (*fast_meta.ARITHMETIC, *fast_meta.NEW)]
Make = Callable[..., torch.Tensor]


def arguments(func: OpOverload, make: Callable[[], torch.Tensor]) -> list[Any]:
    """Arguments for the op's schema: tensors by `make`, numbers where it wants numbers."""
    return [
        make() if str(argument.type) == "Tensor" else 0.5
        for argument in func._schema.arguments
        if not argument.kwarg_only
    ]


def zeros(*size: int, **options: Any) -> torch.Tensor:
    return torch.zeros(size, device="meta", **options)


PLAIN: dict[str, Callable[[], torch.Tensor]] = {
    "float32": lambda: zeros(3, 4),
    "float16": lambda: zeros(3, 4, dtype=torch.float16),
    "bfloat16": lambda: zeros(3, 4, dtype=torch.bfloat16),
    "scalar": lambda: zeros(),
    "empty": lambda: zeros(0, 4),
    "one row": lambda: zeros(1, 4),
    "inside another": lambda: zeros(9)[3:6],
    "strange strides of length 1": lambda: torch.empty_strided((3, 1), (1, 7), device="meta"),
}

NOT_PLAIN: dict[str, Callable[[], torch.Tensor]] = {
    "transposed": lambda: zeros(3, 4).t(),
    "channels last": lambda: zeros(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "every second": lambda: zeros(8)[::2],
    "expanded": lambda: zeros(1).expand(4),
    "integer": lambda: zeros(3, dtype=torch.int64),
    "bool": lambda: zeros(3, dtype=torch.bool),
    "complex": lambda: zeros(3, dtype=torch.complex64),
    "on the host": lambda: torch.zeros(3),
    "sparse": lambda: torch.sparse_coo_tensor(size=(3, 3), device="meta", check_invariants=False),
}


def described(tensor: torch.Tensor) -> tuple[object, ...]:
    return (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.storage_offset())


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("func", NEW, ids=str)
def test_a_new_result_is_what_the_meta_kernel_makes(func: OpOverload, kind: str) -> None:
    args = arguments(func, PLAIN[kind])
    quick = FAST[func](args, {})
    assert quick is not None
    assert described(quick) == described(func(*args))
    assert quick.untyped_storage().nbytes() == func(*args).untyped_storage().nbytes()


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("func", IN_PLACE, ids=str)
def test_an_op_in_place_answers_its_first_argument(func: OpOverload, kind: str) -> None:
    args = arguments(func, PLAIN[kind])
    before = described(args[0])
    assert FAST[func](args, {}) is args[0]
    assert func(*args) is args[0]
    assert described(args[0]) == before


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of PyTorch 2.12
@pytest.mark.parametrize("kind", NOT_PLAIN)
@pytest.mark.parametrize("func", FAST, ids=str)
def test_what_is_not_plain_is_left_to_the_meta_kernel(func: OpOverload, kind: str) -> None:
    assert FAST[func](arguments(func, NOT_PLAIN[kind]), {}) is None


@pytest.mark.parametrize(
    "other",
    [
        zeros(3, 1),  # is broadcast
        zeros(3, 4, dtype=torch.int64),  # promotes
        zeros(4, 3).t(),
        True,
        1j,
    ],
    ids=["another shape", "another dtype", "another layout", "bool", "complex number"],
)
def test_operands_that_differ_are_left_to_the_meta_kernel(other: Any) -> None:
    for func in (aten.add.Tensor, aten.add_.Tensor, aten.mul.Tensor, aten.div.Tensor):
        assert FAST[func]([zeros(3, 4), other], {}) is None


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (zeros(3, 4), zeros(3, 4, dtype=torch.bfloat16)),
        (zeros(3, 4, dtype=torch.bfloat16), zeros(3, 4, dtype=torch.float16)),
        (zeros(2, 3, 4), zeros(4)),
        (zeros(4), zeros(2, 3, 4, dtype=torch.float16)),
        (zeros(3, 4, dtype=torch.float16), zeros()),  # a number does not promote
        (zeros(dtype=torch.float64), zeros(3, 4)),
        (zeros(), zeros(dtype=torch.float64)),
        (zeros(0, 4), zeros(4)),
        (zeros(3, 1), zeros(3, 1, dtype=torch.float64)),
    ],
)
@pytest.mark.parametrize("func", [aten.add.Tensor, aten.mul.Tensor])
def test_sums_may_be_of_two_dtypes_or_of_rows_and_one_row(
    func: OpOverload, left: torch.Tensor, right: torch.Tensor
) -> None:
    quick = FAST[func]([left, right], {})
    assert quick is not None
    assert described(quick) == described(func(left, right))


def test_options_are_numbers_or_known_words() -> None:
    x = zeros(3)
    assert FAST[aten.add.Tensor]([x, x], {"alpha": 2}) is not None
    assert FAST[aten.add.Tensor]([x, x], {"alpha": 2j}) is None
    assert FAST[aten.gelu.default]([x], {"approximate": "tanh"}) is not None
    assert FAST[aten.gelu.default]([x], {"approximate": "exact"}) is None


def norm_arguments(**changes: Any) -> list[Any]:
    """Of batch norm over (2, 3, 4, 4): input, weight, bias, running mean and variance, ..."""
    named = {"images": zeros(2, 3, 4, 4), "weight": zeros(3), "training": True, **changes}
    return [
        named["images"],
        named["weight"],
        *(zeros(3) for _ in range(3)),
        named["training"],
        0.1,
        1e-5,
    ]


def norm_backward_arguments(
    wanted: list[bool], training: bool = True, gradient: torch.Tensor | None = None
) -> list[Any]:
    gradient = zeros(2, 3, 4, 4) if gradient is None else gradient
    channels = [zeros(3) for _ in range(5)]  # weight, running and saved means and variances
    return [gradient, zeros(2, 3, 4, 4), *channels, training, 1e-5, wanted]


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.native_batch_norm.default, norm_arguments()),
        (aten.native_batch_norm.default, norm_arguments(images=zeros(5, 3))),
        (aten.native_batch_norm_backward.default, norm_backward_arguments([True, True, True])),
    ],
    ids=["images", "rows", "all gradients"],
)
def test_batch_norm_in_training_is_what_the_meta_kernel_makes(
    func: OpOverload, args: list[Any]
) -> None:
    quick = FAST[func](args, {})
    assert quick is not None
    assert [described(made) for made in quick] == [described(made) for made in func(*args)]


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.native_batch_norm.default, norm_arguments(training=False)),
        (aten.native_batch_norm.default, norm_arguments(weight=None)),
        (aten.native_batch_norm.default, norm_arguments(weight=zeros(4))),
        (aten.native_batch_norm.default, norm_arguments(images=zeros(2, 3, 4, 4).half())),
        (
            aten.native_batch_norm_backward.default,
            norm_backward_arguments([True, True, True], training=False),
        ),
        (aten.native_batch_norm_backward.default, norm_backward_arguments([False, True, True])),
        (
            aten.native_batch_norm_backward.default,
            norm_backward_arguments([True, True, True], gradient=zeros(1).expand(2, 3, 4, 4)),
        ),
    ],
    ids=[
        "eval",
        "no weight",
        "wrong weight",
        "half",
        "eval, backward",
        "frozen input",
        "expanded gradient",
    ],
)
def test_other_batch_norms_are_left_to_the_meta_kernel(func: OpOverload, args: list[Any]) -> None:
    assert FAST[func](args, {}) is None


ROWS = (2, 3, 4)


def layer_norm_arguments(rows: torch.Tensor | None = None, weight: Any = "plain") -> list[Any]:
    rows = zeros(*ROWS) if rows is None else rows
    return [rows, [4], zeros(4) if weight == "plain" else weight, zeros(4), 1e-5]


def layer_norm_backward_arguments(
    gradient: torch.Tensor | None = None, wanted: tuple[bool, bool, bool] = (True, True, True)
) -> list[Any]:
    gradient = zeros(*ROWS) if gradient is None else gradient
    statistics = [zeros(2, 3, 1) for _ in range(2)]
    return [gradient, zeros(*ROWS), [4], *statistics, zeros(4), zeros(4), list(wanted)]


def mask(*size: int) -> torch.Tensor:
    return zeros(*size, dtype=torch.bool)


def column() -> torch.Tensor:
    """A dimension of length 1 has a stride that no kernel would give it."""
    return torch.empty_strided((3, 1), (1, 7), device="meta")


def half(*size: int) -> torch.Tensor:
    return zeros(*size, dtype=torch.float16)


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.native_layer_norm.default, layer_norm_arguments()),
        (aten.native_layer_norm.default, [zeros(*ROWS), [3, 4], zeros(3, 4), zeros(3, 4), 1e-5]),
        (aten.native_layer_norm.default, [zeros(4), [4], zeros(4), zeros(4), 1e-5]),
        (aten.native_layer_norm.default, layer_norm_arguments(zeros(0, 4))),
        (aten.native_layer_norm.default, [column(), [1], zeros(1), zeros(1), 1e-5]),
        (aten.native_layer_norm.default, layer_norm_arguments(weight=None)),
        (aten.native_layer_norm.default, [half(*ROWS), [4], half(4), None, 1e-5]),
        (aten.native_layer_norm_backward.default, layer_norm_backward_arguments()),
        (
            aten.native_layer_norm_backward.default,
            layer_norm_backward_arguments(wanted=(True, True, False)),
        ),
        (
            aten.native_layer_norm_backward.default,
            layer_norm_backward_arguments(wanted=(False, True, True)),
        ),
        (aten.native_dropout.default, [zeros(3, 4), 0.1, True]),
        (aten.native_dropout.default, [half(3, 4), 0.5, True]),
        (aten.native_dropout.default, [column(), 0.5, True]),
        (aten.native_dropout_backward.default, [zeros(3, 4), mask(3, 4), 2.0]),
        (aten.native_dropout_backward.default, [half(3, 4), mask(3, 4), 2.0]),
        (aten.native_dropout_backward.default, [column(), mask(3, 1), 2.0]),
        (aten._softmax_backward_data.default, [zeros(3, 4), zeros(3, 4), -1, torch.float32]),
        (aten._softmax_backward_data.default, [half(3, 4), half(3, 4), 0, torch.float16]),
        (aten._softmax_backward_data.default, [column(), column(), 0, torch.float32]),
        (aten.threshold_backward.default, [zeros(3, 4), zeros(3, 4), 0]),
        (aten.threshold_backward.default, [half(2, 3, 1, 4), half(2, 3, 1, 4), 0]),
        (aten.addmm.default, [zeros(5), zeros(3, 4), zeros(4, 5)]),
        (aten.addmm.default, [zeros(5), zeros(4, 3).t(), zeros(5, 4).t()]),
        (aten.addmm.default, [half(5), half(1, 4), half(5, 4).t()]),
        (aten.addmm.default, [zeros(1), zeros(3, 4), zeros(4, 1)]),
        (aten.addmm.default, [zeros(5), zeros(0, 4), zeros(4, 5)]),
        (aten.addmm.default, [zeros(5), zeros(3, 0), zeros(0, 5)]),
        (aten.addmm.default, [zeros(5), zeros(1, 4).expand(3, 4), zeros(4, 5)]),
    ],
    ids=lambda value: str(value) if isinstance(value, OpOverload) else "",
)
def test_steps_of_a_transformer_are_what_the_meta_kernel_makes(
    func: OpOverload, args: list[Any]
) -> None:
    quick, slow = FAST[func](args, {}), func(*args)
    assert quick is not None
    if isinstance(quick, torch.Tensor):
        quick, slow = (quick,), (slow,)
    assert [made is None for made in quick] == [made is None for made in slow]
    for made, expected in zip(quick, slow, strict=True):
        if made is not None:
            assert described(made) == described(expected)
            assert made.untyped_storage().nbytes() == expected.untyped_storage().nbytes()


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.native_layer_norm.default, layer_norm_arguments(half(*ROWS))),
        (aten.native_layer_norm.default, layer_norm_arguments(zeros(2, 5))),
        (aten.native_layer_norm.default, layer_norm_arguments(weight=zeros(3))),
        (aten.native_layer_norm.default, [zeros(4), [2, 4], zeros(2, 4), zeros(2, 4), 1e-5]),
        (
            aten.native_layer_norm_backward.default,
            layer_norm_backward_arguments(zeros(1).expand(*ROWS)),
        ),
        (aten.native_dropout.default, [zeros(3, 4), 0.1, False]),
        (aten.native_dropout.default, [zeros(3, 4), 0.0, True]),
        (aten.native_dropout.default, [zeros(3, 4), 1.0, True]),
        (aten.native_dropout_backward.default, [zeros(3, 4), mask(4), 2.0]),
        (aten.native_dropout_backward.default, [zeros(3, 4), zeros(3, 4), 2.0]),
        (aten._softmax_backward_data.default, [zeros(3, 4), zeros(3, 4), 2, torch.float32]),
        (aten._softmax_backward_data.default, [zeros(3, 4), zeros(3, 4), 0, torch.float16]),
        (aten._softmax_backward_data.default, [zeros(), zeros(), 0, torch.float32]),
        (aten.threshold_backward.default, [column(), zeros(3, 1), 0]),
        (aten.threshold_backward.default, [zeros(3, 1), column(), 0]),
        (aten.addmm.default, [zeros(3, 5), zeros(3, 4), zeros(4, 5)]),
        (aten.addmm.default, [zeros(1), zeros(3, 4), zeros(4, 5)]),
        (aten.addmm.default, [zeros(5), zeros(3, 4), zeros(3, 5)]),
        (aten.addmm.default, [zeros(5), zeros(3, 4), half(4, 5)]),
        (aten.addmm.default, [zeros(5), zeros(4), zeros(4, 5)]),
        (aten.addmm.default, [zeros(5), torch.zeros(3, 4), zeros(4, 5)]),
    ],
    ids=lambda value: str(value) if isinstance(value, OpOverload) else "",
)
def test_other_steps_are_left_to_the_meta_kernel(func: OpOverload, args: list[Any]) -> None:
    assert FAST[func](args, {}) is None


def test_a_product_that_is_scaled_is_left_to_the_meta_kernel() -> None:
    args = [zeros(5), zeros(3, 4), zeros(4, 5)]
    assert FAST[aten.addmm.default](args, {"beta": 2}) is None


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


def test_another_mode_sees_the_op_itself(seen: Seen) -> None:
    x = torch.zeros(3, device="cuda")
    seen.ops.clear()
    _ = x * 2
    assert seen.ops == ["aten.mul.Tensor"]


def test_what_traces_below_sees_the_op_itself() -> None:
    with vramlab.VirtualGPU("T4"):
        x = torch.zeros(3, device="cuda")
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


def test_memory_is_counted_as_without_shortcuts() -> None:
    with vramlab.VirtualGPU("T4"):
        x = torch.zeros(1024, device="cuda")
        y = x * 2  # 4096 B more
        y += 1
        assert torch.cuda.memory_allocated() == 2 * 4096
        with pytest.raises(RuntimeError, match="size of tensor a"):
            x + torch.zeros(1000, device="cuda")


def test_statistics_of_rows_are_float32_whatever_the_default() -> None:
    args = layer_norm_arguments()
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        quick = FAST[aten.native_layer_norm.default](args, {})
        slow = aten.native_layer_norm.default(*args)
    finally:
        torch.set_default_dtype(default)
    assert isinstance(quick, tuple)
    assert [described(each) for each in quick] == [described(each) for each in slow]
