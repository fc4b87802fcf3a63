"""PyTorch's own questions are answered; a program's are not, whatever its functions are called."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.pipelining.schedules import _PipelineSchedule
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from vramlab.errors import NoValuesError
from vramlab.gpu import VirtualGPU
from vramlab.gpu.ops.callers import CALLERS, Caller, _code

FUNCTIONS = [caller for caller in CALLERS if caller.function]

VOTE = next(
    (
        getattr(_PipelineSchedule, name)
        for name in ("_initialize_pipeline_distributed_state", "_warmup_p2p")
        if hasattr(_PipelineSchedule, name)
    ),
    None,
)
"""In which the stages of a pipeline agree on how they exchange shapes; not before PyTorch 2.12."""


def unknown(dtype: torch.dtype) -> torch.Tensor:
    return torch.rand(1, device="cuda").to(dtype)


@pytest.mark.parametrize("caller", FUNCTIONS, ids=lambda caller: caller.function)
def test_the_functions_of_the_table_are_there(caller: Caller) -> None:
    importlib.import_module(caller.module)
    code = _code(caller.module, caller.function)
    if "_PipelineSchedule." in caller.function:
        assert code in (None, getattr(VOTE, "__code__", None))
    else:
        assert code is not None


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.function or caller.module)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_a_program_may_call_its_functions_alike(
    caller: Caller, dtype: torch.dtype, gpu: VirtualGPU
) -> None:
    """Also its methods, and its modules, which lie beside PyTorch's."""
    importlib.import_module(caller.module)
    *classes, name = (caller.function or "step").split(".")
    program = f"def {name}(x): return x.item()"
    for outer in reversed(classes):
        program = f"class {outer}:\n " + program.replace("\n", "\n ")
    file = str(importlib.import_module(caller.module).__file__)
    for path in ("<stdin>", "train.py", f"{Path(file).parent}_mine.py", f"{file}.old"):
        namespace: dict[str, Any] = {"__name__": caller.module}
        exec(compile(program, path, "exec"), namespace)
        function: Any = namespace[(classes or [name])[0]]
        for part in [*classes, name][1:]:
            function = getattr(function, part)
        x = unknown(dtype)
        if path.endswith(".old") and not caller.function:
            continue  # such a file would be in PyTorch's own folder
        with pytest.raises(NoValuesError):
            function(x)


def small_step(closure: Callable[[nn.Linear], Any]) -> None:
    layer = nn.Linear(4, 4, device="cuda")
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=2)

    def compute() -> torch.Tensor:
        optimizer.zero_grad()
        loss = layer(torch.zeros(2, 4, device="cuda")).pow(2).sum()
        loss.backward()
        closure(layer)
        return loss

    optimizer.step(compute)


def test_what_an_optimizer_calls_is_the_program_again(gpu: VirtualGPU) -> None:
    small_step(lambda layer: None)
    with pytest.raises(NoValuesError):
        small_step(lambda layer: layer.weight.sum().item())
    layer = nn.Linear(4, 4, device="cuda")
    optimizer = torch.optim.SGD(layer.parameters())
    optimizer.register_step_pre_hook(lambda *args: print(layer.bias.sum().item()))
    with pytest.raises(NoValuesError):
        optimizer.step()
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD(layer.parameters()))
    schedule.step(layer.bias.detach().sum())


class Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Ops(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Functions, Ops])
def test_modes_of_a_program_may_stand_in_between(mode: type, gpu: VirtualGPU) -> None:
    with mode():
        small_step(lambda layer: None)
        with pytest.raises(NoValuesError):
            small_step(lambda layer: layer.weight.sum().item())


def test_only_modules_swap_impls_without_their_attributes(gpu: VirtualGPU) -> None:
    """As when a module is moved. A program that swaps tensors gets PyTorch's own function."""
    namespace: dict[str, Any] = {"__name__": nn.modules.module.__name__, "torch": torch}
    exec("def swap(a, b): torch.utils.swap_tensors(a, b)", namespace)
    first, second = torch.zeros(2, device="cuda"), torch.zeros(3, device="cuda")
    first.note = "the first's"  # type: ignore[attr-defined]
    namespace["swap"](first, second)
    assert first.shape == (3,)
    assert second.note == "the first's"  # type: ignore[attr-defined]
