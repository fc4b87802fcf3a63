"""Which names of `torch.cuda` a virtual GPU supports, and which it refuses: each is tried.

The results are those of one PyTorch, the locked one: with another, pages stay as they are.
"""

from __future__ import annotations

import re
import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.cuda
import torch.cuda.memory
from torch import nn

from benchmarks.estimates.scores import markdown_table
from vramlab.gpu import VirtualGPU
from vramlab.gpu.stand_ins.torch_c import is_safe_without_gpu
from vramlab.gpu.torch_internals import CUDA_FUNCTIONS, installed_version
from vramlab.torch_versions import parse, text

NAMESPACES = (torch.cuda, torch.cuda.memory)
"""Where public names are looked for: in `__all__` of these, in this order."""


def _like_malloc() -> Any:
    return torch.cuda.CUDAPluggableAllocator(None, "malloc", "free")  # type: ignore[arg-type]


CALLS: Mapping[str, Callable[[], object]] = {
    "CUDAPluggableAllocator": _like_malloc,
    "CudaError": lambda: torch.cuda.CudaError(2),
    "ExternalStream": lambda: torch.cuda.ExternalStream(1),
    "StreamContext": lambda: torch.cuda.StreamContext(torch.cuda.current_stream()),
    "caching_allocator_alloc": lambda: torch.cuda.caching_allocator_alloc(512),
    "caching_allocator_delete": lambda: torch.cuda.caching_allocator_delete(0),
    "can_device_access_peer": lambda: torch.cuda.can_device_access_peer(0, 1),
    "change_current_allocator": lambda: torch.cuda.memory.change_current_allocator(
        types.SimpleNamespace(allocator=lambda: None)  # type: ignore[arg-type]
    ),
    "check_error": lambda: torch.cuda.check_error(0),
    "device": lambda: torch.cuda.device(0),
    "device_of": lambda: torch.cuda.device_of(torch.zeros(1, device="cuda")),
    "get_stream_from_external": lambda: torch.cuda.get_stream_from_external(1),
    "graph": lambda: torch.cuda.graph(torch.cuda.CUDAGraph()),
    "make_graphed_callables": lambda: torch.cuda.make_graphed_callables(
        nn.Linear(1, 1).cuda(), (torch.zeros(1, 1, device="cuda"),)
    ),
    "manual_seed": lambda: torch.cuda.manual_seed(0),
    "manual_seed_all": lambda: torch.cuda.manual_seed_all(0),
    "set_device": lambda: torch.cuda.set_device(0),
    "set_per_process_memory_fraction": lambda: torch.cuda.set_per_process_memory_fraction(0.5),
    "set_rng_state": lambda: torch.cuda.set_rng_state(torch.cuda.get_rng_state()),
    "set_rng_state_all": lambda: torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all()),
    "set_stream": lambda: torch.cuda.set_stream(torch.cuda.current_stream()),
    "set_sync_debug_mode": lambda: torch.cuda.set_sync_debug_mode(0),
    "stream": lambda: torch.cuda.stream(torch.cuda.current_stream()),
    "use_mem_pool": lambda: torch.cuda.use_mem_pool(torch.cuda.MemPool()).__enter__(),
}
"""How names are tried that take arguments. All others are called without."""


LOCK = Path(__file__).parents[2] / "requirements.txt"


def is_locked() -> bool:
    """Whether the installed PyTorch has the version that the pages describe."""
    (locked,) = re.findall(r"^torch==(.+)$", LOCK.read_text(encoding="utf-8"), re.M)
    return installed_version() == parse(locked)


def torch_cuda() -> str:
    """Return what torch.cuda's public interface answers, and what it refuses in which words."""
    answers = tried()
    refused: dict[str, list[str]] = {}
    for name, said in answers.items():
        if said is not None:
            refused.setdefault(said.replace(f"torch.cuda.{name} ", "torch.cuda.… "), []).append(
                name
            )
    answered = [name for name, said in answers.items() if said is None]
    rows = [(_listed(names), said) for said, names in refused.items()]
    return "\n\n".join(
        (
            f"Of {len(answers)} public functions, classes and values in `torch.cuda` and "
            f"`torch.cuda.memory` of PyTorch {text(installed_version())}, {len(answered)} are "
            "supported:",
            f"{_listed(answered)}.",
            f"{len(answers) - len(answered)} are refused:",
            markdown_table(("name", "error"), rows),
        )
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def public_names() -> dict[str, Any]:
    """Return the module of each public name of `torch.cuda`, but its modules, by the name."""
    owners: dict[str, Any] = {}
    for owner in NAMESPACES:
        for name in sorted(set(owner.__all__) - owners.keys()):
            if not isinstance(getattr(owner, name), types.ModuleType):
                owners[name] = owner
    return dict(sorted(owners.items(), key=lambda item: item[0].lower()))


@cache
def tried() -> dict[str, str | None]:
    """Try every public name of `torch.cuda`, but its modules, on a machine with two T4s.

    Returns:
        For each name what the error says; None if there was none.
    """
    return {name: _error_when_called(name, owner) for name, owner in public_names().items()}


def _error_when_called(name: str, owner: Any) -> str | None:
    with warnings.catch_warnings(), VirtualGPU("T4", 2, on_value="nan"):
        warnings.simplefilter("ignore")  # of names that PyTorch deprecates
        torch.zeros(1, device="cuda")  # some only answer once a GPU has been used
        return _error_of(CALLS.get(name) or getattr(owner, name))


def _error_of(value: Any) -> str | None:
    """Return what calling it raises. What cannot be called is there, and that is its answer."""
    if not callable(value):
        return None
    try:
        value()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return None


def c_layer() -> str:
    """Return which C functions under torch.cuda and torch.accelerator are supported, and how."""
    rows = [(f"`{name}`", internal.purpose) for name, internal in CUDA_FUNCTIONS.items()]
    others = sorted(c_functions() - CUDA_FUNCTIONS.keys())
    hidden = [name for name in others if not is_safe_without_gpu(name)]
    return "\n\n".join(
        (
            markdown_table(("`torch._C`", "on a virtual GPU"), rows),
            f"Hidden are {_listed(hidden)}.",
        )
    )


def c_functions() -> set[str]:
    """Return the C functions of torch.cuda that PyTorch's types list, in every build."""
    types_of_c = Path(torch.__file__).parent / "_C" / "__init__.pyi"
    return set(re.findall(r"^def (_cuda_\w+)", types_of_c.read_text(encoding="utf-8"), re.M))
