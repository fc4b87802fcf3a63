"""The small language of answers: enough to answer with, and no way out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vramlab_classroom.judge.restricted import load
from vramlab_classroom.judge.vocabulary import NotAllowed, vocabulary

ORDINARY = """
from __future__ import annotations
import itertools as it
import math
from collections import defaultdict
from dataclasses import dataclass, field

STEPS = {"small": 512}
STEPS["large"] = 2 * 2**20

@dataclass
class Segment:
    size: int
    blocks: list[int] = field(default_factory=list)

    def add(self, block: int) -> None:
        self.blocks.append(block)
        self.size -= block

class Tail(Segment):
    def __init__(self) -> None:
        super().__init__(10)

    def __len__(self) -> int:
        return len(self.blocks)

def f(n: int) -> int:
    tail = Tail()
    tail.add(3)
    counts: dict[str, int] = defaultdict(int)
    for name, step in STEPS.items():
        counts[name] += math.ceil(n / step)
    try:
        1 // 0
    except ZeroDivisionError as error:
        text = f"{error!s:>4}"
    first, *rest = sorted(it.chain([3], [1, 2]), key=lambda x: -x)
    with_walrus = (m := max(rest)) + m
    match n:
        case 1:
            return 0
        case _:
            return counts["small"] + len(tail) + tail.size + first + with_walrus + len(text)
"""


def test_ordinary_python_works() -> None:
    # ceil(1025/512)=3, one block, 10-3=7 left, first=3, 2+2, 'integer division or modulo by zero'
    message = "integer division or modulo by zero"
    assert load(ORDINARY, vocabulary())["f"](1025) == 3 + 1 + 7 + 3 + 4 + len(message)


def test_a_plain_program_may_compute_with_numpy() -> None:
    source = "import numpy as np\ndef f(x):\n    return int(np.ceil(x / 2))"
    assert load(source, vocabulary())["f"](5) == 3


def of_storage(expression: str) -> object:
    source = f"import torch\ndef f(x):\n    return {expression}"
    return load(source, vocabulary())["f"](torch.ones(3))


def test_a_storage_tells_its_size_and_place() -> None:
    assert of_storage("x.untyped_storage().nbytes()") == 12  # 3 numbers of 4 B
    assert of_storage("len(x.untyped_storage())") == 12
    assert of_storage("x.untyped_storage().data_ptr() == x.data_ptr()") is True


@pytest.mark.parametrize(
    "expression",
    [
        "x.untyped_storage().tolist()",
        "list(x.untyped_storage())",
        "x.untyped_storage()[0]",
        "getattr(x, 'untyped_storage')().cpu()",
        "list(map(torch.Tensor.untyped_storage, [x]))[0].copy_(x)",
    ],
)
def test_a_storage_tells_no_numbers(expression: str) -> None:
    with pytest.raises((NotAllowed, AttributeError, TypeError)):
        of_storage(expression)


TORCH = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.factor = 2
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * ctx.factor * x

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return F.relu(checkpoint(self.layer, x, use_reentrant=False))

def train():
    model = Model()
    with torch.no_grad():
        model.layer.weight.fill_(1.0)
        model.layer.bias.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    x = torch.ones(1, 2, requires_grad=True)
    loss = Square.apply(model(x)).sum()
    loss.backward()
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.25
    x.grad = None
    model.layer.bias.requires_grad = False
    return model.layer.weight[0, 0].item()
"""


def test_ordinary_torch_works() -> None:
    # y = 1+1 = 2 per output; d(y^2)/dw = 2*2*1 = 4; w = 1 - 0.5*4
    assert load(TORCH, vocabulary())["train"]() == -1.0


ESCAPES = {
    "class of a tuple": "().__class__.__base__.__subclasses__()",
    "builtins by name": "__builtins__['open']",
    "import of os": "import os",
    "import from": "from os import path",
    "star import": "from math import *",
    "private import": "from math import __loader__",
    "module in a module": "import collections.abc\ncollections.abc.sys",
    "module through from": "from collections import abc\nabc.sys",
    "frame of a generator": "g = (g.gi_frame for _ in [1])\nnext(g)",
    "frame by its parts": "def f():\n    yield\nf().gi_frame.f_back",
    "traceback": "try:\n    1 / 0\nexcept Exception as e:\n    e.__traceback__",
    "traceback without underscore": "try:\n    1 / 0\nexcept Exception as e:\n    e.tb_frame",
    "object of an error": "try:\n    (1).nope\nexcept AttributeError as e:\n    e.obj",
    "format": "'{0.__class__.__base__}'.format(1)",
    "format of the class": "str.format('{0.__init__}', 1)",
    "format of a class of one's own": (
        "class S(str):\n    pass\nS.format('{0.__init__.__globals__}', 1)"
    ),
    "format of the base": (
        "class S(str):\n    def f(self):\n        return super().format(1)\nS('{0.__init__}').f()"
    ),
    "format_map": "'{a.__init__}'.format_map({'a': 1})",
    "class pattern": "match 1:\n    case int(real=r):\n        pass",
    "class pattern by place": "match 1:\n    case int(x):\n        pass",
    "closed class pattern": "match 1:\n    case object(__class__=c):\n        pass",
    "method that others read addresses from": (
        "class A:\n    @property\n    def __array_interface__(self):\n        return {}"
    ),
    "the same by a name": "class A:\n    __array_interface__ = {}",
    "the same by a keyword": (
        "from types import SimpleNamespace\nSimpleNamespace(**{'__array_interface__': {}})"
    ),
    "the same, past our class": (
        "from types import SimpleNamespace as S\ns = S()\n"
        "super(S, s).__init__(**{'__array_interface__': {}})"
    ),
    "the same by an enum": (
        "from enum import Enum\nEnum('E', {'A': 1, '__array_interface__': {}})"
    ),
    "the same by an enum's maker": (
        "from enum import Enum\nclass E(Enum):\n    pass\nE._create_('E', {'A': 1})"
    ),
    "the same by a cached property": (
        "from functools import cached_property as c\nclass A:\n    pass\n"
        "c.__set_name__(c(lambda self: {}), A, '__array_interface__')"
    ),
    "the same by a property of one's own": (
        "from functools import cached_property\nclass C(cached_property):\n"
        "    def name(self):\n        super().__set_name__(C, '__array_interface__')\n"
        "C(lambda self: {}).name()"
    ),
    "the same by object": (
        "class A:\n    pass\nobject.__setattr__(A(), '__array_interface__', {})"
    ),
    "the same by super": (
        "class A:\n    def set(self):\n        super().__setattr__('__array_interface__', {})\n"
        "A().set()"
    ),
    "the same by a slot": (
        "class A:\n    __slots__ = ('__array_interface__',)\nsetattr(A(), '__array_interface__', 1)"
    ),
    "names of another module by an enum": (
        "from enum import Enum\nclass E(Enum):\n    pass\n"
        "E._convert_('X', 'os', filter=lambda name: name == 'system')"
    ),
    "what copies call": "class A:\n    def __reduce__(self):\n        return print, ('copied',)",
    "state that copies set": "class A:\n    def __getstate__(self):\n        return None, {}",
    "method called by the garbage collector": "class A:\n    def __del__(self):\n        pass",
    "callback of the garbage collector": (
        "import weakref\nclass A:\n    pass\nweakref.ref(A(), lambda reference: None)"
    ),
    "object set up again": "import math\nmath.__init__(print)",
    "setting of a foreign object": "import random\nobject.__setattr__(random.Random(), 'x', 1)",
    "deletion by name": "import math\ndelattr(math, 'ceil')",
    "property set up again": (
        "from fractions import Fraction\nproperty.__init__(Fraction.numerator, lambda self: 0)"
    ),
    "foreign object made bare": "import random\nobject.__new__(random.Random)",
    "any memory as objects": (
        "import numpy as np\ntype(np.zeros(1))((1,), dtype=object, buffer=np.array([1234]))"
    ),
    "the same by what annotations name": (
        "import numpy as np\nfrom numpy.typing import NDArray\n"
        "NDArray[np.int64]((1,), dtype=object, buffer=np.array([1234]))"
    ),
    "memory taken from views": "import numpy as np\nnp.zeros(1).resize(9, refcheck=False)",
    "variables of a caller": "import numpy as np\nmap(np.bmat, ['self'])",
    "ordering of a foreign class": "from functools import total_ordering\ntotal_ordering(int)",
    "text evaluated by dispatch": (
        "from functools import singledispatch\n@singledispatch\ndef f(x):\n    pass\n"
        "@f.register\ndef _(x: '().__class__.__base__'):\n    pass"
    ),
    "builtin given to a class by dispatch": (
        "from functools import singledispatch\nclass Grab:\n    def __or__(self, other):\n"
        "        return int\ngrab = Grab()\n@singledispatch\ndef f(x):\n    pass\n"
        "@f.register\ndef _(x: grab | __import__):\n    pass"
    ),
    "call evaluated by dispatch": (
        "from functools import singledispatchmethod\nclass A:\n    @singledispatchmethod\n"
        "    def f(self, x):\n        pass\n    @f.register\n    def _(self, x: print()):\n"
        "        pass"
    ),
    "text evaluated by a reference": (
        "from typing import Optional, get_args\nget_args(Optional['1'])[0].evaluate()"
    ),
    "formatter of strings": "import string\nstring.Formatter().format('{0.__class__}', 1)",
    "memory of an array": "import numpy\nnumpy.lib.stride_tricks",
    "base of one's own": "class A:\n    def f(self):\n        return super().__reduce__()\nA().f()",
    "getattr hook": "class A:\n    def __getattr__(self, name):\n        return 1",
    "metaclass": "class M(type):\n    pass",
    "patched module": "import math\nmath.ceil = int",
    "patched builtin class": "int.bit_length = 1",
    "patched function": "from textwrap import dedent\ndedent.x = 1",
    "code of a function": "def f():\n    pass\nf.__code__ = (lambda: 1).__code__",
    "attribute by a getter": "from operator import attrgetter\nattrgetter('__class__.__base__')(1)",
    "method by a caller": (
        "from operator import methodcaller\nmethodcaller('__reduce_ex__', 2)(object())"
    ),
    "closed attribute in a pattern": (
        "class A:\n    pass\nmatch 1:\n    case A.__dict__:\n        pass"
    ),
    "deleted attribute": "import math\ndel math.ceil",
    "augmented attribute": "import math\nmath.pi += 1",
    "private attribute of others": "import math\nmath._x = 1",
    "private attribute of a class": "int._x",
    "special attribute of one's own": "class A:\n    pass\nA.__dict__",
    "special attribute set by a dict": (
        "class A:\n    pass\na = A()\na.__dict__['__array_interface__'] = {}"
    ),
    "attributes of a foreign object": "import random\nvars(random.Random())",
    "special attribute written": "class A:\n    pass\nA().__class__ = int",
    "special attribute by name": "getattr((), '__class__').__base__",
    "name that changes its mind": (
        "class S(str):\n    pass\ngetattr((), S('__class__'))\nraise NameError"
    ),
    "class of a class": "type(type(1))",
    "class of a class, read": "(1).__class__.__class__",
    "class of a facade": "import math\ntype(math)",
    "class of a facade, read": "import math\nmath.__class__",
    "subclass of a facade's class": "import math\nclass F(math.__class__):\n    pass",
    "setattr": "setattr(int, 'x', 1)",
    "wraps": "from functools import wraps\nwraps(len)(print)",
    "closed by name": "getattr((_ for _ in []), 'gi_frame')",
    "keyword": "dict(__class__=1)",
    "function name": "def __import__():\n    pass",
    "argument name": "lambda __builtins__: 1",
    "global name": "def f():\n    global __builtins__",
    "handler name": "try:\n    1 / 0\nexcept Exception as __name__:\n    pass",
    "alias": "import math as __builtins__",
    "async": "async def f():\n    pass",
    "open": "open('/etc/passwd')",
    "eval": "eval('1')",
    "type": "type('A', (), {})",
    "globals": "globals()",
    "relative import": "from . import grading",
}


@pytest.mark.parametrize("source", ESCAPES.values(), ids=ESCAPES)
def test_a_prediction_has_no_way_out(source: str) -> None:
    with pytest.raises((NotAllowed, NameError, TypeError)):
        load(source, vocabulary())


TORCH_ESCAPES = {
    "load": "torch.load('x')",
    "save": "torch.save(1, 'x')",
    "file as tensor": "torch.from_file('x', size=1)",
    "storage from file": "torch.zeros(1).untyped_storage().from_file('x', False, 1)",
    "raw memory": "torch.zeros(1).numpy().ctypes",
    "module in torch": "torch.sys.modules",
    "module deeper": "torch.nn.functional.importlib",
    "C layer": "torch._C._cuda_resetPeakMemoryStats(0)",
    "private import": "from torch import _C",
    "dispatch modes": "from torch.utils._python_dispatch import _disable_current_modes",
    "overrides": "import torch.overrides",
    "library": "import torch.library",
    "compile": "torch.compile(abs)",
    "compile of a module": "torch.nn.Linear(1, 1).compile()",
    "patched counter": "torch.cuda.max_memory_allocated = lambda: 0",
    "patched class": "torch.nn.Linear.forward = lambda self, x: x",
    "class rewritten by dataclass": "from dataclasses import dataclass\ndataclass(torch.Tensor)",
    "class rewritten with options": (
        "from dataclasses import dataclass\ndataclass(eq=True)(torch.nn.Linear)"
    ),
    "patched tensor class": "torch.Tensor.add = 1",
    "memory taken away": "torch.zeros(1).untyped_storage().resize_(0)",
    "memory replaced": "torch.zeros(1).set_()",
    "private attribute": "torch.nn.Linear(1, 1)._parameters",
    "private attribute written": "torch.nn.Linear(1, 1)._parameters = {}",
    "another class": "torch.nn.Linear(1, 1).__class__ = torch.nn.ReLU",
    "counters replaced": "torch.cuda.memory.max_memory_allocated = None",
    "files of numpy": "import numpy\nnumpy.fromfile('x')",
    "modules of numpy": "import numpy\nnumpy.lib",
    "kernels of operators": "torch.ops.aten.mm.default.py_impl(1)",
    "operator that takes memory": "torch.ops.aten.set_",
    "operator that reads a number": "torch.ops.aten._local_scalar_dense",
    "other operators": "torch.ops.prims",
    "NumPy as a tensor": "torch.from_numpy",
    "larger fraction": "torch.cuda.set_per_process_memory_fraction(1.0)",
    "other allocator": "torch.cuda.memory.change_current_allocator(None)",
    "history": "torch.cuda.memory._record_memory_history()",
    "vramlab": "import vramlab",
    "all objects": "import gc\ngc.get_objects()",
    "processes": "import torch.multiprocessing",
    "hub": "torch.hub.load('a', 'b')",
    "global default": "torch.set_default_device('cpu')",
}


@pytest.mark.parametrize("source", TORCH_ESCAPES.values(), ids=TORCH_ESCAPES)
def test_a_repair_cannot_leave_torch_or_touch_what_measures(source: str) -> None:
    with pytest.raises(NotAllowed):
        load(f"import torch\n{source}", vocabulary())


def test_torch_is_as_it_was_after_an_attempt_to_patch_it() -> None:
    before = torch.cuda.max_memory_allocated
    with pytest.raises(NotAllowed, match="may not change the attributes of Facade"):
        load("import torch\ntorch.cuda.max_memory_allocated = None", vocabulary())
    assert torch.cuda.max_memory_allocated is before


def test_what_is_refused_is_named_with_what_to_do() -> None:
    with pytest.raises(NotAllowed, match=r"^import os: .* A repaired program is ordinary PyTorch"):
        load("import os", vocabulary())
    with pytest.raises(NotAllowed, match=r"^the attribute \.__dict__ is not there for answers$"):
        load("int.__dict__", vocabulary())


HONEST = sorted((Path(__file__).parent / "honest_language").glob("*.py"))


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_what_a_good_engineer_writes_works(path: Path) -> None:
    bound = load(path.read_text(), vocabulary())
    assert bound["result"] == bound["expected"]
