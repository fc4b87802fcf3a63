"""What operators count for: a product is a product, however it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import flop_registry

from vramlab_course.tasks import operations
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.work import Work, watching

aten = torch.ops.aten

ROWS, INNER, COLUMNS = 8, 16, 4
FLOPS = 2 * ROWS * INNER * COLUMNS

Tensor = torch.Tensor


def aten_operators() -> Iterator[Any]:
    """All that kernels have, but for what C++ makes of others on every device."""
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace != "aten" or packet.startswith(("_test_", "_foobar")):
            continue
        try:
            func = getattr(getattr(aten, packet), overload or "default")
        except AttributeError:
            continue  # of TorchScript alone
        has_kernel = func.has_kernel_for_dispatch_key
        composite = torch._C.DispatchKey.CompositeImplicitAutograd
        if not has_kernel(composite) or has_kernel(torch._C.DispatchKey.CPU):
            yield func


def test_every_operator_is_in_the_table() -> None:
    """A new one would be counted by its sizes, which is too much for most."""
    unknown = [
        func.name()
        for func in aten_operators()
        if operations.base_name(func) not in operations.PRODUCTS and not operations.is_linear(func)
    ]
    assert unknown == []


def _matrix_of_rows(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([torch.mv(b.T, row) for row in a])


def _outer_products(a: Tensor, b: Tensor) -> Tensor:
    y = a.new_zeros(ROWS, COLUMNS)
    for k in range(INNER):
        y = torch.addr(y, a[:, k], b[k])
    return y


def _fused_multiply_add(a: Tensor, b: Tensor) -> Tensor:
    y = a.new_zeros(ROWS, COLUMNS)
    for k in range(INNER):
        y = torch.addcmul(y, a[:, k, None], b[k])
    return y


def _by_distances(a: Tensor, b: Tensor) -> Tensor:
    squares = torch.cdist(a, b.T) ** 2
    return (a.square().sum(1)[:, None] + b.square().sum(0) - squares) / 2


def _solved(a: Tensor, b: Tensor) -> Tensor:
    """The inverse of a triangle with ones, and -a beside them, has a there."""
    whole = torch.eye(ROWS + INNER, device=a.device)
    whole[:ROWS, ROWS:] = -a
    right = torch.cat([a.new_zeros(ROWS, COLUMNS), b])
    return torch.linalg.solve(whole, right)[:ROWS]


def _attended(a: Tensor, b: Tensor) -> Tensor:
    """Scores that are all the same, and so the mean over values, of each row's."""
    query = a.new_zeros(ROWS, 1, 8, 8)
    value = (a[:, :, None] * b)[:, None]
    padded = functional.pad(value, (0, 8 - COLUMNS))
    key = a.new_zeros(ROWS, 1, INNER, 8)
    return INNER * functional.scaled_dot_product_attention(query, key, padded)[:, 0, 0, :COLUMNS]


WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matmul": lambda a, b: a @ b,
    "linear": lambda a, b: functional.linear(a, b.T),
    "addmm": lambda a, b: torch.addmm(a.new_zeros(COLUMNS), a, b),
    "addmm_": lambda a, b: a.new_zeros(ROWS, COLUMNS).addmm_(a, b),
    "baddbmm_": lambda a, b: a.new_zeros(1, ROWS, COLUMNS).baddbmm_(a[None], b[None])[0],
    "addbmm": lambda a, b: torch.addbmm(a.new_zeros(ROWS, COLUMNS), a[None], b[None]),
    "mv": _matrix_of_rows,
    "addmv": lambda a, b: torch.stack([torch.addmv(b.new_zeros(COLUMNS), b.T, row) for row in a]),
    "dot": lambda a, b: torch.stack([torch.dot(row, column) for row in a for column in b.T]).view(
        ROWS, COLUMNS
    ),
    "addr": _outer_products,
    "outer": lambda a, b: sum(torch.outer(a[:, k], b[k]) for k in range(INNER)),  # type: ignore[misc]
    "einsum": lambda a, b: torch.einsum("mk,kn->mn", a, b),
    "tensordot": lambda a, b: torch.tensordot(a, b, 1),
    "inner": lambda a, b: torch.inner(a, b.T),
    "vecdot": lambda a, b: torch.linalg.vecdot(a[:, None], b.T[None]),
    "multi_dot": lambda a, b: torch.linalg.multi_dot([a, b]),
    "bilinear": lambda a, b: functional.bilinear(a, a.new_ones(ROWS, 1), b.T[:, :, None]),
    "conv1d": lambda a, b: functional.conv1d(a[None].mT, b.T[:, :, None])[0].T,
    "conv_transpose1d": lambda a, b: functional.conv_transpose1d(a[None].mT, b[:, :, None])[0].T,
    "conv_tbc": lambda a, b: torch.conv_tbc(a[:, None], b[None], b.new_zeros(COLUMNS))[:, 0],
    "cdist": _by_distances,
    "solve": _solved,
    "attention": _attended,
    "complex": lambda a, b: torch.view_as_real(
        torch.view_as_complex(a.view(ROWS, -1, 2))
        @ torch.view_as_complex(b.T.contiguous().view(COLUMNS, -1, 2)).T.conj()
    )[..., 0],
    "element by element": lambda a, b: (a[:, :, None] * b[None]).sum(1),
    "addcmul": _fused_multiply_add,
}


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("way", WAYS)
def test_a_product_counts_as_one_however_it_is_written(way: str, device: str) -> None:
    torch.manual_seed(1)
    for mode in (torch.no_grad, torch.inference_mode):
        work = Work()
        with GPU("T4", values=True).attached() as gpu, mode():
            a = torch.randn(ROWS, INNER).to(device)
            b = torch.randn(INNER, COLUMNS).to(device)
            with watching(gpu, work), work.counting():
                found = WAYS[way](a, b)
            torch.testing.assert_close(found.cpu(), a.cpu() @ b.cpu(), rtol=1e-3, atol=1e-4)
        counted = work.on_gpu if device == "cuda" else work.on_host
        assert counted >= FLOPS
        if way in ("matmul", "linear", "addmm", "addmm_", "addbmm", "einsum", "conv1d"):
            assert work.flops == FLOPS


def _called(func: Any, *args: Any) -> tuple[int, int]:
    """As it is counted here, and by torch."""
    result = func(*args)
    ours = operations.flops_of(func, args, {}, result)
    return ours, flop_registry[func._overloadpacket](*args, out_val=result)


def test_where_torch_counts_the_count_is_the_same() -> None:
    x, image = torch.ones(2, 3, 8, 6), torch.ones(5, 3, 3, 3)
    convolution = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    gradient = torch.ones(2, 5, 6, 4)
    mask = [True, True, False]
    upside_down = (None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1)
    for func, *args in (
        (aten.mm.default, torch.ones(2, 3), torch.ones(3, 4)),
        (aten.addmm.default, torch.ones(4), torch.ones(2, 3), torch.ones(3, 4)),
        (aten.bmm.default, torch.ones(5, 2, 3), torch.ones(5, 3, 4)),
        (aten.baddbmm.default, torch.ones(4), torch.ones(5, 2, 3), torch.ones(5, 3, 4)),
        (aten.convolution.default, x, image, *convolution),
        (aten.convolution.default, x, image.transpose(0, 1), *upside_down),
        (aten.convolution_backward.default, gradient, x, image, None, *convolution[1:], mask),
    ):
        ours, torchs = _called(func, *args)
        assert ours == torchs, func


def test_an_operator_that_nobody_knows_counts_by_its_sizes() -> None:
    """sqrt(MK * KN * MN) is MKN."""
    a, b = torch.ones(ROWS, INNER), torch.ones(INNER, COLUMNS)
    assert operations._by_sizes((a, b), a @ b) == FLOPS
