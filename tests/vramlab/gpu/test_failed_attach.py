"""An attach that fails, wherever it does, leaves everything as it was; the next one works."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pynvml
import pytest
import torch
from torch_state import changed_names, state_of_torch, train_a_little

import vramlab
from vramlab.gpu import VirtualGPU, attached, virtual_gpu
from vramlab.gpu.core import modes
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.ops import autocast, cuda_paths
from vramlab.units import MIB


class Failure(Exception):
    """What a step of attaching raises here."""


def failing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that fails instead of the original."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise Failure

    return fail


def failing_once(original: Callable[..., Any]) -> Callable[..., Any]:
    """Fail at the call of the GPU to attach, and go on for the one before it, which wakes again."""
    calls = itertools.count()

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == 0:
            raise Failure
        return original(*args, **kwargs)

    return call


IN_THE_THREAD: dict[str, tuple[Any, str]] = {
    "autocast key": (modes, "switch_autocast_key"),
    "dispatch mode": (modes, "AllocationMode"),
    "function mode": (modes, "push_function_mode"),
}
"""Steps by which a thread comes to see GPUs, once for all that are attached."""

IN_ALL_THREADS: dict[str, tuple[Any, str]] = {
    "CUDA's paths": (cuda_paths.CudaPaths, "install"),
    "autocast": (autocast.Autocast, "install"),
    "library": (torch.library, "Library"),
    "swap": (torch.__future__, "set_swap_module_params_on_conversion"),
}
"""Steps of single stand-ins."""

STAND_INS: dict[str, int] = {
    f"{stand_in.__module__}.{stand_in.__name__}": number
    for number, stand_in in enumerate(virtual_gpu.STAND_INS)
}


def break_step(
    step: str, how: Callable[[Callable[..., Any]], Callable[..., Any]], patch: pytest.MonkeyPatch
) -> None:
    """Let a step fail until the patch is undone."""
    if step in STAND_INS:
        stand_ins = list(virtual_gpu.STAND_INS)
        stand_ins[STAND_INS[step]] = how(stand_ins[STAND_INS[step]])
        patch.setattr(virtual_gpu, "STAND_INS", tuple(stand_ins))
    else:
        owner, name = (IN_THE_THREAD | IN_ALL_THREADS)[step]
        patch.setattr(owner, name, how(getattr(owner, name)))


@contextmanager
def unchanged() -> Iterator[None]:
    """What the body changes, it has put back at its end."""
    before = state_of_torch()
    yield
    after = state_of_torch()
    assert {name for name in before | after if before.get(name) != after.get(name)} == set()


@pytest.fixture(scope="module", autouse=True)
def _used_before() -> None:
    """Load what torch and Python load when a GPU is first used."""
    with VirtualGPU("T4"):
        train_a_little()


@pytest.mark.parametrize("step", [*IN_ALL_THREADS, *STAND_INS])
def test_the_gpu_that_was_attached_goes_on(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with unchanged(), VirtualGPU("T4", 2) as outer:
        x = torch.zeros(MIB, device="cuda")
        with unchanged_names(), monkeypatch.context() as patch:
            break_step(step, failing_once, patch)
            with pytest.raises(Failure):
                VirtualGPU("L4").attach()
        assert attached() is outer
        assert torch.cuda.device_count() == 2
        assert torch.cuda.memory_allocated() == 4 * MIB
        train_a_little()
        with VirtualGPU("L4"):
            train_a_little()
        assert (x + 1).device == torch.device("cuda:0")


@contextmanager
def unchanged_names() -> Iterator[None]:
    """What has names of its own stays: GPUs make new stand-ins each time they wake."""
    before = set(state_of_torch())
    yield
    assert set(state_of_torch()) == before


def test_any_change_of_a_name_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are made one by one; each fails once, before it is made."""
    names = changed_names()
    assert len(names) > 100
    change = {name: getattr(Patches, name) for name in ("set", "remove")}
    left = 0

    def failing_in_the_end(name: str) -> Callable[..., None]:
        def call(*args: Any) -> None:
            nonlocal left
            if left == 0:
                raise Failure
            left -= 1
            change[name](*args)

        return call

    with unchanged():
        for before_it in range(len(names)):
            left = before_it
            with monkeypatch.context() as patch:
                for name in change:
                    patch.setattr(Patches, name, failing_in_the_end(name))
                with pytest.raises(Failure):
                    VirtualGPU("T4").attach()
            assert attached() is None
    with VirtualGPU("T4"):
        train_a_little()


def test_any_kernel_may_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those registered for autocast and for CUDA's paths, every tenth."""
    register = torch.library.Library.impl
    registered: list[str] = []

    def counting(library: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        registered.append(str(name))
        return register(library, name, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(torch.library.Library, "impl", counting)
        with VirtualGPU("T4"):
            pass
    assert len(registered) > 80
    for last in range(0, len(registered), 10):
        left = iter(range(last))

        def failing_at_last(*args: Any, left: Any = left, **kwargs: Any) -> Any:
            if next(left, None) is None:
                raise Failure
            return register(*args, **kwargs)

        with unchanged(), monkeypatch.context() as patch:
            patch.setattr(torch.library.Library, "impl", failing_at_last)
            with pytest.raises(Failure):
                VirtualGPU("T4").attach()
    with VirtualGPU("T4"):
        train_a_little()


def test_another_pynvml_is_an_error_that_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with unchanged():
        with monkeypatch.context() as patch:
            patch.delattr(pynvml, "_nvmlLib_refcount")
            with pytest.raises(AttributeError, match="_nvmlLib_refcount"):
                vramlab.attach("T4", virtual=True, quiet=True)
        assert vramlab.attached() is None
        vramlab.detach()
    vramlab.attach("T4", virtual=True, quiet=True)
    train_a_little()
    vramlab.detach()


def test_a_gpu_that_failed_can_be_attached_later(monkeypatch: pytest.MonkeyPatch) -> None:
    again = VirtualGPU("T4")
    with monkeypatch.context() as patch:
        patch.setattr(virtual_gpu, "STAND_INS", (*virtual_gpu.STAND_INS, failing(print)))
        with pytest.raises(Failure):
            again.attach()
    again.detach()  # harmless
    with unchanged(), again:
        train_a_little()
