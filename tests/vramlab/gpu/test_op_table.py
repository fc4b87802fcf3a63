"""One record for each op, by name; an op that PyTorch does not have breaks nothing."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from vramlab.gpu import ops
from vramlab.gpu.core.op_table import OPS, AutocastPolicy, OpTable
from vramlab.gpu.ops import operand_checks, sparse
from vramlab.gpu.ops.describe import describe

aten = torch.ops.aten


def do_nothing(*args: Any, **kwargs: Any) -> Any:
    return None


SINCE = {
    "_c10d_functional.wait_tensors.default": (2, 15),
    "aten._scaled_addmm.default": (2, 15),
    "aten.linalg_matrix_sqrth.default": (2, 14),
}
"""Ops that came with a later PyTorch than the oldest that is supported."""


def test_this_pytorch_has_every_op_of_the_table() -> None:
    own = [name for name in ops.missing_ops() if not name.startswith("torchvision.")]
    assert sorted(own) == [name for name, version in SINCE.items() if torch.__version__ < version]


def test_ops_that_pytorch_lacks_are_named_and_never_met() -> None:
    table = OpTable()
    table.op("aten.no_such_op.default", "aten.neg.no_such_overload", handler=do_nothing)
    table.op("no_such_namespace.neg.default", "aten.neg.default", check=do_nothing)
    assert table.missing() == [
        "aten.neg.no_such_overload",
        "aten.no_such_op.default",
        "no_such_namespace.neg.default",
    ]
    assert list(table.having("handler")) == []
    ((func, spec),) = table.having("check")
    assert func is aten.neg.default
    assert spec.check is do_nothing


def test_a_name_without_its_overload_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'aten\.neg' is no overload: write it like"):
        OpTable().op("aten.neg", handler=do_nothing)


def test_what_is_filled_in_later_counts() -> None:
    table = OpTable()
    assert table[aten.neg.default].parts == {}


def test_a_record_joins_what_families_say() -> None:
    mm = OPS[aten.mm.default]
    assert mm.name == "aten.mm.default"
    assert mm.check is operand_checks.mm
    assert mm.autocast is AutocastPolicy.LOWER_PRECISION
    assert mm.rule is not None
    assert "aten.mm.default" in mm.rule.ops
    assert inspect.unwrap(mm.handler) is sparse.mm
    assert (mm.layout, mm.cuda_path) == (None, None)


@pytest.mark.parametrize(
    ("func", "facts"),
    [
        (aten.zeros.default, "creates"),
        (aten.add_.Tensor, "written"),
        (aten.mm.out, "written resizes"),
        (aten.resize_.default, "written resizes"),
        (aten._foreach_add_.Scalar, "written skips"),
        (aten.add.Tensor, ""),
        (aten.matmul.default, "is_composite"),
        (aten.repeat_interleave.Tensor, ""),
        (torch.ops.prim.device.default, ""),
    ],
    ids=str,
)
def test_schemas_and_kernels_tell_the_rest(func: Any, facts: str) -> None:
    spec = OPS[func]
    told = {"creates", "written", "resizes", "skips", "is_composite"}
    assert {fact for fact in told if getattr(spec, fact)} == set(facts.split())


def test_an_op_that_says_all_of_itself() -> None:
    told = describe(aten.addmm.default)
    assert told["op"] == "aten.addmm.default"
    assert told["schema"] == str(aten.addmm.default._schema)
    assert str(told["handler"]).startswith("vramlab.gpu.ops.sparse.addmm: ")
    assert str(told["check"]).startswith("vramlab.gpu.ops.operand_checks.addmm: ")
    assert str(told["rule"]).startswith("vramlab.kernels.matmul.addmm: ")
    assert told["source"] == "aten/src/ATen/native/cuda/Blas.cpp, PyTorch 2.13"
    assert {part for part, what in told.items() if what is None} == {
        *("CUDA path", "outputs", "layout", "fill")
    }


ROOMS = {"core": ("ops", "stand_ins"), "ops": ("stand_ins",)}
"""Rooms of vramlab/gpu, and those that they know nothing of."""


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_know_of_each_other_in_one_direction(room: str) -> None:
    folder = Path(ops.__file__).parents[1] / room
    modules = list(folder.rglob("*.py"))
    assert len(modules) > 10
    found = {
        (module.name, node.module)
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        for other in ROOMS[room]
        if f"{node.module}.".startswith(f"vramlab.gpu.{other}.")
    }
    assert found == set()
