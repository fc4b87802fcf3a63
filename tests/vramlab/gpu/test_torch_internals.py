"""Private names of PyTorch: all in one place, there in this version, and missed in words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

import vramlab
from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU, torch_internals
from vramlab.gpu.stand_ins.torch_c import CLayer
from vramlab.gpu.torch_internals import CUDA_FUNCTIONS, READ, Found, Internal, Replaced

PACKAGE = Path(vramlab.__file__).parent
HOME = Path(torch_internals.__file__)

OF_OTHERS = {
    "_ArgumentGroup": "argparse: a type",
    "_SubParsersAction": "argparse: a type",
    "_asdict": "NamedTuple: public, its fields' names could clash",
    "_replace": "NamedTuple: public, its fields' names could clash",
    "_current_frames": "sys: documented",
    "_python_exit": "concurrent.futures: what ends its threads",
    "_run_exitfuncs": "atexit: runs what is registered",
    "_getframe": "sys: documented",
    "_obj": "ctypes.byref: the object",
    "_nvmlLib_refcount": "pynvml",
}
"""Names with an underscore that are not PyTorch's."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def names_defined_in(tree: ast.AST) -> set[str]:
    """Names with an underscore that a module gives to what is its own."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


def private_names_of_torch(tree: ast.AST, own: frozenset[str]) -> Iterator[str]:
    """Private names of PyTorch in a module's code; ops (`torch.ops.aten._softmax`) have none.

    Args:
        tree: the module.
        own: names of vramlab's, which objects other than modules of PyTorch's may have.
    """
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "torch":
                    modules[alias.asname or "torch"] = alias.name if alias.asname else "torch"
                    yield from (alias.name for part in alias.name.split(".") if is_private(part))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                path = f"{node.module}.{alias.name}"
                modules[alias.asname or alias.name] = path
                yield from (path for part in path.split(".") if is_private(part))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            path = ast.unparse(node)
            root, _, rest = path.partition(".")
            whole = f"{modules[root]}.{rest}" if root in modules else path
            of_torch = root in modules and not whole.startswith("torch.ops.")
            of_op = root in ("aten", "c10d", "functional") or whole.startswith("torch.ops.")
            of_self = root in ("self", "cls", "super()") and rest == node.attr
            if of_torch or not (of_op or of_self or node.attr in own | set(OF_OTHERS)):
                yield whole
        elif isinstance(node, ast.Call):
            root, *names = (ast.unparse(argument) for argument in node.args[:2] or [node.func])
            named = [name.strip("'\"") for name in names if name[:1] in "'\""]
            if root.partition(".")[0] in modules and any(map(is_private, named)):
                yield f"{root}.{named[0]}"


@cache
def modules() -> dict[Path, ast.Module]:
    """Read all of vramlab; by tests alone, since every worker imports this file."""
    return {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def own_names() -> frozenset[str]:
    """Names with an underscore that vramlab defines."""
    others = (names_defined_in(tree) for path, tree in modules().items() if path != HOME)
    return frozenset().union(*others)


def test_no_private_name_is_elsewhere() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), name)
        for path, tree in modules().items()
        if path != HOME
        for name in private_names_of_torch(tree, own_names())
    }
    assert found == set()


@pytest.mark.parametrize(
    "code",
    [
        "from torch._ops import OpOverload",
        "from torch.utils import _python_dispatch",
        "import torch.utils._pytree as pytree",
        "import torch\ntorch._C._len_torch_dispatch_stack()",
        "from torch import overrides\noverrides._push_mode(mode)",
        "import torch.distributed as dist\ndist.ProcessGroup._register_backend",
        "import torch\npatches.set(torch.cuda, '_initialized', True)",
        "import torch\nhasattr(torch.Tensor, '_use_count')",
        "tensor.untyped_storage()._cdata",
        "func._schema.name",
    ],
)
def test_a_private_name_is_found(code: str) -> None:
    assert list(private_names_of_torch(ast.parse(code), own_names()))


def test_names_of_ops_and_of_ones_own_are_none() -> None:
    code = "import torch\naten._softmax\ntorch.ops.aten._to_copy.default\nself._dispatcher._run"
    assert list(private_names_of_torch(ast.parse(code), {"_run"})) == []


def test_types_are_those_of_the_names() -> None:
    """What mypy takes a name for, and what is looked up, are the same."""
    (block,) = (
        node
        for node in modules()[HOME].body  # type: ignore[attr-defined]
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    typed = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    annotated = {ast.unparse(node.target) for node in block.body if isinstance(node, ast.AnnAssign)}
    assert typed == {n: each.path for n, each in READ.items() if n not in annotated}
    assert annotated <= set(READ)


@pytest.mark.parametrize("internal", [*torch_internals.internals()], ids=lambda each: each.path)
def test_this_pytorch_has_the_name_in_its_versions(internal: Internal) -> None:
    major, minor = map(int, torch.__version__.split(".")[:2])
    is_expected = internal.is_in((major, minor))
    always = internal.found in (Found.ALWAYS, Found.WHEN_IMPORTED)
    if always or (internal.found is Found.IN_CUDA_BUILDS and torch.version.cuda is not None):
        assert internal.is_there() == is_expected
    elif internal.found is not Found.NEVER and is_expected:
        # PyTorch's own code asks for it, also where it is not built in.
        assert internal.path.rpartition(".")[2] in asked_of_c()


@cache
def asked_of_c() -> set[str]:
    """The words of PyTorch's code that is written for CUDA."""
    root = Path(torch.__file__).parent
    files = [root / "_C" / "__init__.pyi", *(root / "cuda").glob("*.py")]
    files += [root / "nn" / "parallel" / "comm.py", root / "_dynamo" / "trace_rules.py"]
    return {word for path in files for word in re.findall(r"\w+", path.read_text("utf-8"))}


def test_every_name_is_used() -> None:
    words = set()
    for path, tree in modules().items():
        if path != HOME:
            imported = (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom))
            words |= {alias.name for node in imported for alias in node.names}
            words |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    replaced = {name for name, each in vars(Replaced).items() if isinstance(each, Internal)}
    assert {name for name in {*READ, *replaced} if name not in words} == set()


def test_the_c_layer_is_declared_function_by_function(gpu: VirtualGPU) -> None:
    assert set(CLayer(gpu.machine).functions()) == set(CUDA_FUNCTIONS)


def test_a_name_that_is_used_and_not_there_says_so_too() -> None:
    gone = Internal("torch._C._of_another_version", "does something", until=(2, 12))
    assert not gone.is_there()
    with pytest.raises(
        UnsupportedOnVirtualGPU, match=r"_of_another_version, .*seen in PyTorch 2.12"
    ):
        gone.value()
    with pytest.raises(UnsupportedOnVirtualGPU, match=r"torch\._no_module"):
        _ = Internal("torch._no_module.name", "does something").at


@pytest.mark.parametrize(
    ("since", "until", "version", "expected"),
    [
        ((2, 11), None, (2, 11), True),
        ((2, 11), None, (2, 14), True),  # the newest has it: so will the next, or tells
        ((2, 12), None, (2, 11), False),
        ((2, 11), (2, 12), (2, 12), True),
        ((2, 11), (2, 12), (2, 13), False),
    ],
)
def test_a_name_of_some_versions_is_asked_of_them(
    since: tuple[int, int],
    until: tuple[int, int] | None,
    version: tuple[int, int],
    expected: bool,
) -> None:
    assert Internal("torch.x", "does something", since, until).is_in(version) is expected


def test_a_name_of_another_version_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = Internal("torch._C._not_yet", "does something", since=(9, 0))
    older = Internal("torch._C._no_more", "does something", until=(2, 10))
    now = Internal("torch._C._gone", "does something")
    monkeypatch.setattr(torch_internals, "READ", {"a": newer, "b": older, "c": now})
    assert torch_internals.missing() == [now]


def test_a_name_that_nobody_declared_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute '_current_graph_task_id'"):
        _ = torch_internals._current_graph_task_id
