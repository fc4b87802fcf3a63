"""What autograd's nodes do on CUDA, where their C++ asks `isTensorSubclassLike` (or `is_meta`).

These are all such formulas of torch/csrc/autograd/FunctionsManual.cpp, and of composite backward
functions in aten/src/ATen/native (ReduceOps.cpp, TensorAdvancedIndexing.cpp, TensorShape.cpp and
LinearAlgebra.cpp), PyTorch 2.13, but for those of forward-mode derivatives and of the second
derivatives of binary cross-entropy and of the determinant.

Known limitations: where a formula reads values that do not exist, no number is taken to be 0: a
product's gradient needs no detour. Where they exist, such formulas take PyTorch's other path.
`linalg.householder_product` and `ormqr` keep the gradients of all reflectors until the last; on
CUDA each is copied to its place at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch

from vramlab.gpu.core.backward_nodes import NodeCall, path
from vramlab.gpu.core.storage_record import has_values, remember
from vramlab.gpu.torch_internals import OpOverload

aten = torch.ops.aten

_SELECTING = ("Max", "Min", "Median", "Nanmedian", "Mode", "Kthvalue", "Sort", "Topk")

IN_PLACE: Mapping[str, tuple[OpOverload, ...]] = {
    # value_selecting_reduction_backward: into zeros; evenly_distribute_backward: the mask of NaNs
    **dict.fromkeys(_SELECTING, (aten.scatter.src, aten.logical_and.default)),
    "Gather": (aten.scatter_add.default,),
    "Cummax": (aten.scatter_add.default,),
    "Cummin": (aten.scatter_add.default,),
    "IndexSelect": (aten.index_add.default,),
    "MaskedSelect": (aten.masked_scatter.default,),
    "Take": (aten.put.default,),
    "Trace": (aten.index_fill.int_Tensor,),
    # clamp_backward of bounds that are tensors
    "Clamp": (aten.logical_and.default, aten.logical_or.default),
}
"""The ops that nodes run in their first operand, which they have made themselves."""

for _node, _ops in IN_PLACE.items():
    path(_node, begins=_ops)(NodeCall.in_place)


OWN_SUMS: Mapping[str, int] = {
    **dict.fromkeys(("Cholesky", "CholeskyInverse", "CholeskySolve", "LinalgCholeskyEx"), 1),
    **dict.fromkeys(("LinalgLu", "LinalgLuFactorEx", "LinalgLuSolve", "LuUnpack"), 1),
    **dict.fromkeys(("LinalgLstsq", "LinalgPinv", "LinalgQr", "Logcumsumexp"), 2),
    **dict.fromkeys(("Mvlgamma", "SpecialI1E", "StdMean", "TriangularSolve", "VarMean"), 1),
    "LinalgSvd": 5,
    "NativeGroupNorm": 3,
}
"""How many sums of two tensors the C++ of nodes makes itself, out of place.

Found by running every operator of PyTorch's own database on the CPU under the profiler, 2.13.
"""


@path(*OWN_SUMS, begins=[aten.add.Tensor], goes_on=True)
def own_sum(call: NodeCall) -> Any:
    """Add out of place what the node adds, before what the engine adds."""
    is_own = call.func is aten.add.Tensor and call.number(call.func) < OWN_SUMS[call.name]
    return call.run(call.func, *call.args, **call.kwargs) if is_own else NotImplemented


@path("Atan2", begins=[aten.add.Tensor, aten.masked_fill.Scalar], goes_on=True)
def atan2(call: NodeCall) -> Any:
    """Add both squares, and fill where their inverse is infinite: `atan2_backward`."""
    if call.func is aten.masked_fill.Scalar:
        return call.in_place()
    is_own = call.func is aten.add.Tensor and not call.before
    return call.run(call.func, *call.args) if is_own else NotImplemented


@path("Renorm", begins=[aten.linalg_vector_norm.default, aten.sum.dim_IntList])
def renorm(call: NodeCall) -> Any:
    """Sum up float32 in float32; on other devices in float64: `renorm_backward`."""
    if call.kwargs.get("dtype") is not torch.float64 or call.args[0].dtype is torch.float64:
        return NotImplemented
    return call.run(call.func, *call.args, **call.kwargs | {"dtype": torch.float32})


@path("Index", begins=[aten.index_put.default])
def index(call: NodeCall) -> Any:
    """Add into zeros in place: `index_backward`."""
    return call.run(aten._index_put_impl_.default, *call.args, True)


@path("MaskedFill", begins=[aten.scalar_tensor.default, aten.where.self])
def masked_fill(call: NodeCall) -> Any:
    """Sum what the mask selects, not what `where` puts beside zeros: `masked_fill_backward`."""
    if call.func is aten.scalar_tensor.default:
        return call.without_memory()
    mask, gradient, _ = call.args
    return call.run(aten.masked_select.default, gradient, mask)


@path("LinalgEigh", "LinalgEig", begins=[aten.diagonal_scatter.default])
def eigenvectors(call: NodeCall) -> Any:
    """Write the diagonal in place: `linalg_eig_backward`."""
    whole, diagonal, *where = call.args
    call.run(aten.copy_.default, call.run(aten.diagonal.default, whole, *where), diagonal)
    return whole


@path("LinalgMatrixExp", begins=[aten.cat.default], goes_on=True)
def matrix_exp(call: NodeCall) -> Any:
    """Write the blocks of a matrix of zeros: `differential_analytic_matrix_function`.

    Else it is put together of its two rows, each of which is put together.
    """
    if (parts := call.number(aten.cat.default)) == 3:
        return NotImplemented
    if not call.before:
        matrix, gradient = call.args[0]
        *batch, rows, columns = matrix.shape
        size = [*batch, 2 * rows, 2 * columns]
        whole = call.kept["whole"] = call.run(aten.new_zeros.default, gradient, size)
        for row, column, block in ((0, 0, matrix), (1, 1, matrix), (0, 1, gradient)):
            part = whole.narrow(-2, row * rows, rows).narrow(-1, column * columns, columns)
            call.run(aten.copy_.default, part, block)
    elif call.func is aten.cat.default and parts == 2:
        return call.kept.pop("whole")
    return call.without_memory()


@path("BinaryCrossEntropy", begins=[aten.logit.default], goes_on=True)
def binary_cross_entropy(call: NodeCall) -> Any:
    """Multiply in place: `binary_cross_entropy_target_backward`."""
    return call.in_place() if call.func is aten.mul.Tensor else NotImplemented


@path(
    "BinaryCrossEntropyWithLogits",
    begins=[aten.add.Scalar, aten.sigmoid.default, aten.neg.default],
    goes_on=True,
)
def binary_cross_entropy_with_logits(call: NodeCall) -> Any:
    """Multiply and subtract in place, without a second derivative.

    `binary_cross_entropy_with_logits_backward` and `..._target_backward`, one after the other.
    """
    steps = aten.mul.Tensor, aten.sub.Tensor
    if call.func not in steps or torch.is_grad_enabled():
        return NotImplemented
    is_in_place = next(islice(_steps_with_logits(call), call.number(*steps), None), False)
    return call.in_place() if is_in_place else NotImplemented


def _steps_with_logits(call: NodeCall) -> Iterator[bool]:
    """Yield, for each product and difference of the formulas, whether it is in place."""
    has_weight, has_positive = (call.saved(n) is not None for n in ("weight", "pos_weight"))
    of_input, of_target = (edge[0] is not None for edge in call.node.next_functions[:2])
    if of_input:
        if has_positive:  # of pos_weight * target + 1: minus target; times sigmoid(input); minus it
            yield from (True, True, True)
        else:  # sigmoid(input) - target
            yield True
        yield True  # times the gradient
        yield from [True] * has_weight
    if of_target:
        if has_positive:  # log_sigmoid(input) * pos_weight; minus that; times the gradient
            yield from (True, True, True)
        else:  # -input * gradient
            yield False
        yield from [True] * has_weight


@path("Prod", begins=[aten.ones.default], goes_on=True)
def product(call: NodeCall) -> Any:
    """Divide the product by each number, where none is 0: `prod_backward`.

    Else it multiplies those before and after each (`prod_safe_zeros_backward`), which ends with its
    second product.
    """
    numbers, result = call.saved("self"), call.saved("result")
    if has_values(numbers):
        return NotImplemented
    if call.func is not aten.mul.Tensor or call.number(aten.mul.Tensor) == 0:
        return call.without_memory()
    gradient = call.args[0]
    is_zero = call.run(aten.eq.Scalar, numbers, 0)
    if (dim := call.saved("dim")) is None:
        remember(is_zero, False)
        zeros = [call.run(aten.nonzero.default, is_zero)]
        del is_zero
    else:
        zeros = [call.run(aten.sum.dim_IntList, is_zero, [dim], True)]
        call.run(aten.sum.default, zeros[0])
        if not call.saved("keepdim"):
            result = result.unsqueeze(dim)
    quotients = call.run(aten.div.Tensor, result, numbers)
    gradients = call.run(aten.mul.Tensor, gradient, quotients)
    del zeros
    return gradients.view(-1) if dim is None else gradients


@path("Cumprod", begins=[aten.eq.Scalar], goes_on=True)
def cumulative_product(call: NodeCall) -> Any:
    """Divide what is summed up from behind by each number, where none is 0: `cumprod_backward`.

    The first op is where zeros are; before, there are the weighted gradients. Else it ends by
    taking the gradient from the second of two ways, or, before PyTorch 2.12, by stacking the
    gradients of each place.
    """
    numbers, weighted = call.saved("self"), call.saved("result")  # of one layout with the weighted
    if has_values(numbers):
        return NotImplemented
    if not call.before:
        is_zero: torch.Tensor = call.run(call.func, *call.args)
        call.kept["is_zero"] = is_zero
        return is_zero
    is_last = call.func is aten.stack.default or (
        call.func is aten.where.self and call.number(aten.where.self) == 1
    )
    if not is_last:
        return call.without_memory()
    call.run(aten.any.default, call.kept.pop("is_zero"))
    dim = call.saved("dim")
    backwards = call.run(aten.flip.default, weighted, [dim])
    sums = call.run(aten.cumsum.default, backwards, dim)
    summed = call.run(aten.flip.default, sums, [dim])
    del backwards, sums  # one expression
    return call.run(aten.div.Tensor, summed, numbers)
