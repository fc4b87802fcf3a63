"""The torch modes through which a thread sees the GPUs that are attached.

Torch keeps modes in two stacks in each thread, one of function modes and one of dispatch modes. A
thread has one of ours on each, however many GPUs are attached: they serve whichever GPU is awake.
So GPUs can be detached in any order, and threads see the GPU that is there now.

Ours lie at the bottom, wherever modes of others (FlopCounterMode, a program's own) were entered
before or after: these leave by taking the top of the stack, and take themselves. Torch puts its own
mode of `torch.set_default_device` there in the same way, and insists that nothing is below. Source:
`DeviceContext` in torch/utils/_device.py, PyTorch 2.13.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from torch.overrides import TorchFunctionMode

from vramlab.gpu.core.dispatch_mode import AllocationMode
from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.function_mode import DeviceMode, Service
from vramlab.gpu.core.patching.main_thread import run_in_main_thread
from vramlab.gpu.torch_internals import (
    TorchDispatchMode,
    default_device_mode,
    dispatch_tls_is_dispatch_key_included,
    dispatch_tls_set_dispatch_key_included,
    get_dispatch_mode_stack,
    get_function_mode_stack,
    mode_key_of,
    pop_dispatch_mode,
    pop_function_mode,
    push_dispatch_mode,
    push_function_mode,
)


class _Served:
    """The GPU that all threads' modes serve."""

    service: Service | None = None


_served = _Served()


def serve(service: Service | None) -> None:
    """Let the modes of all threads serve one GPU; with None they pass everything by."""
    _served.service = service


def served() -> Service | None:
    """Return what the modes serve now, or None."""
    return _served.service


def device_mode() -> DeviceMode:
    """Make a function mode that serves whichever GPU is awake."""
    return DeviceMode(served)


def _device_mode_if_off() -> AbstractContextManager[Any]:
    """Make a function mode unless one is on: below a function that went through it, it is off."""
    is_on = any(isinstance(mode, DeviceMode) for mode in get_function_mode_stack())
    return nullcontext() if is_on else device_mode()


def _served_dispatcher() -> Dispatcher | None:
    service = _served.service
    return None if service is None else service.dispatcher


class EnteredModes:
    """One reason for a thread to have the modes; they stay until every reason is gone."""

    def __init__(self) -> None:
        self.is_over = False
        self._thread = threading.current_thread()

    def leave(self) -> None:
        """Remove the modes of the thread that entered, unless it has another reason for them.

        Only a thread itself can change its stacks. If another one leaves, the main thread removes
        its modes before its next step. In any other thread they pass everything by, until it next
        enters or leaves.
        """
        self.is_over = True
        if self._thread is threading.main_thread() is not threading.current_thread():
            run_in_main_thread(_thread.tidy)
        else:
            _thread.tidy()


class _ThreadModes(threading.local):
    """The modes of the calling thread, and the reasons to have them."""

    def __init__(self) -> None:
        self.reasons: list[EnteredModes] = []
        self.undo = ExitStack()

    def enter(self, sets_flags: bool) -> EnteredModes:
        self.tidy()
        if not self.reasons:
            with ExitStack() as stack:
                function_mode = device_mode()
                dispatch_mode = AllocationMode(_served_dispatcher, _device_mode_if_off)
                stack.callback(_take_out_function_mode, function_mode)
                _put_in_function_mode(function_mode)
                stack.callback(_take_out_dispatch_mode, dispatch_mode)
                _put_in_dispatch_mode(dispatch_mode, sets_flags)
                stack.callback(switch_autocast_key, switch_autocast_key(True))
                self.undo = stack.pop_all()
        self.reasons.append(reason := EnteredModes())
        return reason

    def tidy(self) -> None:
        self.reasons = [reason for reason in self.reasons if not reason.is_over]
        if not self.reasons:
            self.undo.close()


_thread = _ThreadModes()


def enter() -> EnteredModes:
    """Let the calling thread see the GPUs that are attached, until `leave()`."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    return _thread.enter(sets_flags=in_main_thread)


@contextmanager
def in_new_thread() -> Iterator[None]:
    """Let a thread other than the one that attaches see the GPUs, inside the with statement."""
    reason = _thread.enter(sets_flags=False)
    try:
        yield
    finally:
        reason.leave()


def switch_autocast_key(included: bool) -> bool:
    """Let the calling thread's ops pass autocast's kernels whenever autocast is on.

    Returns:
        Whether they did before.
    """
    before = dispatch_tls_is_dispatch_key_included("AutocastCUDA")
    dispatch_tls_set_dispatch_key_included("AutocastCUDA", included)
    return bool(before)


def _put_in_function_mode(mode: DeviceMode) -> None:
    default = default_device_mode()
    above = _pop_function_modes_until(lambda top: top is default)
    push_function_mode(mode)
    for each in reversed(above):
        push_function_mode(each)


def _take_out_function_mode(mode: DeviceMode) -> None:
    """Take a mode out of the thread's stack. Inside its own call it is not there: it comes back."""
    mode.retire()
    modes = get_function_mode_stack()
    if any(each is mode for each in modes):
        above = _pop_function_modes_until(lambda top: top is mode)
        pop_function_mode()
        for each in reversed(above):
            push_function_mode(each)


def _pop_function_modes_until(
    found: Callable[[TorchFunctionMode], bool],
) -> list[TorchFunctionMode]:
    """Take those above a mode from the stack, or all, the topmost first."""
    above: list[TorchFunctionMode] = []
    while (modes := get_function_mode_stack()) and not found(modes[-1]):
        above.append(pop_function_mode())
    return above


def _put_in_dispatch_mode(mode: AllocationMode, sets_flags: bool) -> None:
    others = _leave_all_dispatch_modes()
    if sets_flags:
        mode.__enter__()
    else:
        # The flags that TorchDispatchMode sets beside the stack are the process's: a thread that
        # ends after the GPU is gone would set them for good, or one that ends with the GPU.
        push_dispatch_mode(mode)
    for _, come_back in others:
        come_back()


def _take_out_dispatch_mode(mode: AllocationMode) -> None:
    mode.retire()
    for each, come_back in _leave_all_dispatch_modes():
        if each is not mode:
            come_back()


def _leave_all_dispatch_modes() -> list[tuple[TorchDispatchMode, Callable[[], object]]]:
    """Leave all dispatch modes of the thread, by the methods of their base class whatever they do.

    Beside the stack, torch keeps flags that say whether there is a mode, and each mode remembers
    what they were when it was entered. So the mode that was entered first is left last. Modes such
    as FakeTensorMode have places of their own below the stack, whenever they were entered.

    Returns:
        The modes and how each comes back, in the order in which they have to.
    """
    stack = get_dispatch_mode_stack()
    below = [mode for mode in stack if mode.is_infra_mode()]
    above = [mode for mode in stack if not mode.is_infra_mode()]
    is_below_first = any(_found_no_other(mode) for mode in below)
    in_order = (*below, *above) if is_below_first else (*above, *below)
    return [(mode, _leave(mode)) for mode in reversed(in_order)][::-1]


def _found_no_other(mode: TorchDispatchMode) -> bool:
    """Return whether a mode was entered while there was no other."""
    return False in getattr(mode, "old_dispatch_mode_flags", ())


def _leave(mode: TorchDispatchMode) -> Callable[[], object]:
    """Take a mode from its place. Answers how to put it back: entered, or only pushed."""
    if getattr(mode, "old_dispatch_mode_flags", ()):
        TorchDispatchMode.__exit__(mode, None, None, None)
        return partial(TorchDispatchMode.__enter__, mode)
    pop_dispatch_mode(mode_key_of(mode))
    return partial(push_dispatch_mode, mode)
