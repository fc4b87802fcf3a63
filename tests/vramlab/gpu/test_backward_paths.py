"""What backward formulas do on CUDA and not below a dispatch mode: sizes are PyTorch's own.

The numbers are what PyTorch 2.13's CUDA build asked for on the native engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from vramlab import VirtualGPU
from vramlab.measure import record_timeline

Program = Callable[[Tensor], Tensor]

FLOATS = 4 * 64 * 64
"""Bytes of the parameter, and of its gradient."""
MASK = 64 * 64
ROW_OF_FLOATS, ROW_OF_INTEGERS = 4 * 64, 8 * 64


def rows() -> Tensor:
    return torch.zeros(64, 64, dtype=torch.int64, device="cuda")


def diagonal() -> Tensor:
    return torch.eye(64, dtype=torch.bool).cuda()


def full(value: float, *shape: int) -> Tensor:
    return torch.full(shape or (64, 64), value, device="cuda")


def with_logits(x: Tensor, target: Tensor, **options: Any) -> Tensor:
    return functional.binary_cross_entropy_with_logits(x, target, **options)


SELECTIONS: dict[str, Program] = {
    "gather": lambda x: x.gather(0, rows()),
    "take_along_dim": lambda x: torch.take_along_dim(x, rows(), 1),
    "index_select": lambda x: x.index_select(1, rows()[0]),
    "take": lambda x: x.take(rows()),
    "max": lambda x: x.max(1).values,
    "min": lambda x: x.min(0, keepdim=True).values,
    "median": lambda x: x.median(1).values,
    "nanmedian": lambda x: x.nanmedian(1).values,
    "kthvalue": lambda x: x.kthvalue(3).values,
    "mode": lambda x: x.mode().values,
    "sort": lambda x: x.sort().values,
    "stable sort": lambda x: x.sort(stable=True).values,
    "topk": lambda x: x.topk(5).values,
    "cummax": lambda x: x.cummax(1).values,
    "cummin": lambda x: x.cummin(0).values,
}

# NaNs among the numbers, whether the extreme is one; where they are equal; how many there are, as
# whole numbers, which takes the mask as such; the share of each; the gradient.
EVENLY = [MASK, 1, MASK, 8, 8 * MASK, 4, FLOATS]

PROGRAMS: dict[str, tuple[Program, list[int]]] = {
    **{name: (program, [FLOATS]) for name, program in SELECTIONS.items()},
    "trace": (lambda x: x.trace(), [FLOATS, ROW_OF_INTEGERS]),  # zeros, the diagonal's places
    "max of all": (lambda x: x.max(), EVENLY),
    "min of all": (lambda x: x.min(), EVENLY),
    "median of all": (lambda x: x.median(), EVENLY),
    "nanmedian of all": (lambda x: x.nanmedian(), EVENLY),
    # a zero, two comparisons, the gradient
    "clamp between tensors": (
        lambda x: x.clamp(full(0.0), full(1.0, 64)),
        [4, MASK, MASK, FLOATS],
    ),
    # the same for the lower and for the upper bound; then the product's gradient
    "bounds of a clamp": (
        lambda x: torch.clamp(full(0.0), x, x * 2),
        [4, MASK, MASK, FLOATS, MASK, MASK, FLOATS, FLOATS],
    ),
    # where zeros are, how many of each row and of all; the quotients, the gradient
    "prod of rows": (
        lambda x: x.prod(1),
        [MASK, ROW_OF_INTEGERS, 8 * MASK, 8, FLOATS, FLOATS],
    ),
    "prod of columns, kept": (
        lambda x: x.prod(0, keepdim=True),
        [MASK, ROW_OF_INTEGERS, 8 * MASK, 8, FLOATS, FLOATS],
    ),
    # weighted gradients, where zeros are, whether there is one; flipped, summed, flipped, divided
    "cumprod": (lambda x: x.cumprod(1), [FLOATS, MASK, 1, FLOATS, FLOATS, FLOATS, FLOATS]),
    # both squares and their sum; its inverse, where it is infinite; two products
    "atan2": (lambda x: torch.atan2(x, full(1.0)), [FLOATS] * 4 + [MASK] + [FLOATS] * 2),
    # one sum more, minus the first operand, and the gradient of the other's product
    "atan2 of both": (
        lambda x: torch.atan2(x, x * 2),
        [FLOATS] * 4 + [MASK] + [FLOATS] * 6,
    ),
    # how many elements the diagonal has, and their places in both dimensions, with CUB's storage;
    # what is selected, its sum; where it came from: a row, the parameter
    "value of masked_fill": (
        lambda x: full(0.0).masked_fill(diagonal(), x[0, 0]),
        [4, 1, 2 * 8 * 64, 1023, ROW_OF_FLOATS, 4, ROW_OF_FLOATS, FLOATS],
    ),
    # the same; zeros for the rest of the source, both together
    "source of masked_scatter": (
        lambda x: full(0.0).masked_scatter(diagonal(), x),
        [4, 1, 2 * 8 * 64, 1023, ROW_OF_FLOATS, FLOATS - ROW_OF_FLOATS, FLOATS],
    ),
    # one number to add, the sum, its sum, the product
    "mvlgamma of a sum": (lambda x: x.sum().mvlgamma(1), [4, 4, 4, 4, FLOATS]),
    "mish": (functional.mish, [FLOATS]),
    "sgn": (torch.sgn, []),  # zeros that are never written
    # of the first operand: zeros, and for each of 3 outputs the products with each row of 64
    # weights, and their sums; of the other the same, without products; what the factor 2 gives
    # back, and the sum of both
    "bilinear": (
        lambda x: functional.bilinear(x, x * 2, full(1.0, 3, 64, 64)),
        [*[FLOATS, 64 * FLOATS] * 3, *[FLOATS] * 10],
    ),
    # of the deviation: twice it, the share, whether it is 0, a factor; the mean, the distances from
    # it, their product; the mean's share; their sum
    "std_mean": (
        lambda x: torch.add(*torch.std_mean(x)),
        [4, 4, 1, 4, FLOATS, 4, FLOATS, FLOATS, FLOATS],
    ),
    # the factor and mean of each row
    "var_mean": (
        lambda x: torch.add(*torch.var_mean(x, 1)),
        [ROW_OF_FLOATS, FLOATS, ROW_OF_FLOATS, FLOATS, FLOATS, FLOATS],
    ),
    # the least number; the logarithms, positive and negative; of either: flipped, summed, flipped
    "logcumsumexp": (
        lambda x: x.logcumsumexp(1),
        [4, FLOATS, FLOATS, MASK, FLOATS, MASK, FLOATS] + [FLOATS] * 13,
    ),
    # norms, the product, its sums; where norms are 0, the quotients, their product; 1 / norm, ...
    "renorm": (
        lambda x: x.renorm(2, 0, 1.0),
        [
            *(ROW_OF_FLOATS, FLOATS, ROW_OF_FLOATS, FLOATS, 64, FLOATS),
            *(ROW_OF_FLOATS, ROW_OF_FLOATS, FLOATS, FLOATS, ROW_OF_FLOATS, FLOATS, 64, FLOATS),
        ],
    ),
    "cumprod of the last": (
        lambda x: x.cumprod(-1),
        [FLOATS, MASK, 1, FLOATS, FLOATS, FLOATS, FLOATS],
    ),
    "prod of the last": (
        lambda x: x.prod(-1),
        [MASK, ROW_OF_INTEGERS, 8 * MASK, 8, FLOATS, FLOATS],
    ),
    "logits": (lambda x: with_logits(x, full(0.5)), [FLOATS]),
    "logits, weighted": (
        lambda x: with_logits(x, full(0.5), weight=full(1.0, 64)),
        [FLOATS],
    ),
    # weights times targets, plus 1, the sigmoid
    "logits, weighted by class": (
        lambda x: with_logits(x, full(0.5), pos_weight=full(1.0, 64)),
        [FLOATS] * 3,
    ),
    # of the logits; minus the logits, times the gradient; of the product
    "logits and targets, weighted": (
        lambda x: with_logits(x, x * 2, weight=full(1.0, 64)),
        [FLOATS] * 4,
    ),
    # minus the logits, whose logarithm, and that of the logits
    "targets of logits, weighted by class": (
        lambda x: with_logits(
            full(0.0), x, weight=full(1.0, 64), pos_weight=full(1.0, 64), reduction="none"
        ),
        [FLOATS] * 3,
    ),
    "targets of cross entropy, weighted": (
        lambda x: functional.binary_cross_entropy(full(0.5), x, weight=full(1.0, 64)),
        [FLOATS],
    ),
}


CUBLAS_WORKSPACE = 8_519_680


def sizes_of_backward(program: Program) -> list[int]:
    """Requested bytes of what the backward pass makes, in order, but for cuBLAS's workspace."""
    x = torch.zeros(64, 64, device="cuda", requires_grad=True)
    output = program(x)
    gradient = torch.ones_like(output)
    with record_timeline() as recording:
        output.backward(gradient)
    made = [block for block in recording.timeline.blocks if block.born >= 0]
    sizes = [block.requested_bytes for block in sorted(made, key=lambda block: block.born)]
    return [size for size in sizes if size != CUBLAS_WORKSPACE]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_formula_takes_the_path_of_cuda(name: str) -> None:
    if "clamp" in name and torch.__version__ >= (2, 14):
        pytest.skip("PyTorch 2.14 has another formula, which is not followed")
    program, expected = PROGRAMS[name]
    with VirtualGPU("A100-40GB"):
        assert sizes_of_backward(program) == expected


def test_a_product_of_all_is_divided_by_each_number() -> None:
    with VirtualGPU("A100-40GB"):
        sizes = sizes_of_backward(lambda x: x.prod())
        # where zeros are, the quotients, the gradient; besides, what finding zeros takes
        assert [size for size in sizes if size >= MASK] == [MASK, FLOATS, FLOATS]
        x = torch.zeros(64, 64, device="cuda", requires_grad=True)
        output = x.prod()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        output.backward()
        # the last two, and the first gradient, 512 bytes
        assert torch.cuda.max_memory_allocated() - before == 2 * FLOATS + 512


def test_the_matrix_of_a_matrix_exponential_is_filled_block_by_block() -> None:
    with VirtualGPU("A100-40GB"):
        sizes = sizes_of_backward(torch.linalg.matrix_exp)
    assert sizes[:2] == [4 * FLOATS, 4 * FLOATS]  # twice as high and wide; its exponential


def test_weighted_classes_take_four_tensors_at_most() -> None:
    with VirtualGPU("A100-40GB"):
        x = torch.zeros(64, 64, device="cuda", requires_grad=True)
        loss = with_logits(x, full(0.5), pos_weight=full(1.0, 64))
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        loss.backward()
        # three of the formula, of which one is the gradient; the first gradient, 512 bytes
        assert torch.cuda.max_memory_allocated() - before == 3 * FLOATS + 512


def of_values(values: Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    """Every program of above, with numbers that differ."""
    ids = torch.arange(12).reshape(4, 3) % 3
    chosen = torch.arange(12).reshape(4, 3) % 2 == 0

    def on(x: Tensor, tensor: Tensor) -> Tensor:
        return tensor.to(x.device)

    return {
        "gather": lambda x: x.gather(0, on(x, ids)),
        "index_select": lambda x: x.index_select(1, on(x, ids[0])),
        "take": lambda x: x.take(on(x, ids)),
        "median": lambda x: x.median(1).values,
        "median of all": lambda x: x.median(),
        "max of all": lambda x: x.max(),
        "cummax": lambda x: x.cummax(1).values,
        "kthvalue": lambda x: x.kthvalue(2).values,
        "trace": lambda x: x.trace(),
        "prod": lambda x: x.prod(),
        "prod of rows": lambda x: x.prod(1),
        "cumprod": lambda x: x.cumprod(0),
        "prod of a zero": lambda x: (x - 3).prod(),
        "prod of rows, one with a zero": lambda x: (x - 3).prod(1),
        "cumprod of a zero": lambda x: (x - 3).cumprod(0),
        "clamp": lambda x: x.clamp(x * 0.5, x.detach() * 0.9),
        "masked_select": lambda x: x.masked_select(on(x, chosen)),
        "masked_fill": lambda x: x.masked_fill(on(x, chosen), x[0, 0]),
        "logits": lambda x: with_logits(x, x * 0.1, pos_weight=on(x, values[0])),
        "logits, weighted": lambda x: with_logits(x, x * 0.1, weight=on(x, values[0])),
        "matrix_exp": lambda x: torch.linalg.matrix_exp(x[:3] * 0.1),
        "eigh": lambda x: torch.linalg.eigh(x[:3] + x[:3].T).eigenvectors.abs(),
        "cross entropy": lambda x: functional.binary_cross_entropy(
            x * 0.01, x * 0.02, on(x, values[0])
        ),
    }


@pytest.mark.parametrize("name", of_values(torch.zeros(4, 3)))
def test_gradients_are_those_of_the_cpu(name: str) -> None:
    values = torch.tensor([3.0, 1.5, -4.0, 1.0, 5.0, -9.0, 2.0, 6.0, 0.5, 7.0, 8.0, 1.25])
    values = values.reshape(4, 3).abs() if name == "cross entropy" else values.reshape(4, 3)
    program = of_values(values)[name]
    expected = values.clone().requires_grad_()
    program(expected).sum().backward()
    with VirtualGPU("T4", values=True):
        x = values.cuda().requires_grad_()
        program(x).sum().backward()
        assert x.grad is not None
        torch.testing.assert_close(x.grad.cpu(), expected.grad)


def test_a_graph_that_goes_on_has_a_second_derivative() -> None:
    values = torch.tensor([[0.5, 1.5], [2.0, -1.0]])

    def second(x: Tensor) -> Tensor:
        (first,) = torch.autograd.grad(with_logits(x, x.detach()), x, create_graph=True)
        return torch.autograd.grad(first.sum() + x.gather(0, rows_of(x)).sum(), x)[0]

    def rows_of(x: Tensor) -> Tensor:
        return torch.zeros(1, 2, dtype=torch.int64, device=x.device)

    expected = second(values.clone().requires_grad_())
    with VirtualGPU("T4", values=True):
        torch.testing.assert_close(second(values.cuda().requires_grad_()).cpu(), expected)


def test_a_graph_that_goes_lets_the_last_operand_go_first() -> None:
    with VirtualGPU("A100-40GB"):
        shapes = ((10, 30), (10, 20), (20, 30))
        operands = [torch.zeros(*shape, device="cuda", requires_grad=True) for shape in shapes]
        output = torch.addmm(*operands)
        output.backward(torch.ones_like(output))
        torch.cuda.memory._record_memory_history(stacks="python")
        del operands, output
        events = torch.cuda.memory._snapshot()["device_traces"][0]
        torch.cuda.memory._record_memory_history(enabled=None)
    freed = [event["size"] for event in events if event["action"] == "free_completed"]
    # each operand with its gradient: 20 x 30, 10 x 20, 10 x 30 numbers; then the output
    assert freed == [2400, 2400, 800, 800, 1200, 1200, 1200]
