"""The torch modes through which a thread sees the GPUs that are attached.

Torch keeps modes in two stacks in each thread, one of function modes and one of dispatch modes. A
thread has one of ours on each, however many GPUs are attached: they serve whichever GPU is awake.
So GPUs can be detached in any order, threads see the GPU that is there now, and modes of others
(`torch.device` as a context, FlopCounterMode) may be entered and left in between.

When the last GPU goes, ours are taken out of the stacks from under whatever is above them, as
torch takes out its own mode of `torch.set_default_device`. Source: `DeviceContext.__exit__` in
torch/utils/_device.py, PyTorch 2.13.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from torch import overrides
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from vramlab.virtual.autocast import switch_key
from vramlab.virtual.dispatch import AllocationMode, Dispatcher
from vramlab.virtual.functions import DeviceMode, Service


class _Served:
    """The GPU that all threads' modes serve."""

    service: Service | None = None


_served = _Served()


def serve(service: Service | None) -> None:
    """Let the modes of all threads serve one GPU; with None they pass everything by."""
    _served.service = service


def served() -> Service | None:
    """What the modes serve now, or None."""
    return _served.service


def device_mode() -> DeviceMode:
    """Make a function mode that serves whichever GPU is awake."""
    return DeviceMode(served)


def _served_dispatcher() -> Dispatcher | None:
    service = _served.service
    return None if service is None else service.dispatcher


class EnteredModes:
    """One reason for a thread to have the modes; they stay until every reason is gone."""

    def __init__(self) -> None:
        self.is_over = False

    def leave(self) -> None:
        """Take the calling thread's modes out, unless somebody else needs them.

        In another thread than the one that entered, that one's modes stay until it next enters or
        leaves. Meanwhile they serve what is attached, as in a thread that was started with them.
        """
        self.is_over = True
        _thread.tidy()


class _ThreadModes(threading.local):
    """The modes of the calling thread, and the reasons to have them."""

    def __init__(self) -> None:
        self.reasons: list[EnteredModes] = []
        self.undo = ExitStack()

    def enter(self, is_new_thread: bool) -> EnteredModes:
        self.tidy()
        if not self.reasons:
            with ExitStack() as stack:
                stack.callback(_take_out_function_mode, mode := device_mode())
                overrides._push_mode(mode)
                allocation = AllocationMode(_served_dispatcher)
                stack.callback(_take_out_dispatch_mode, allocation)
                if is_new_thread:
                    # The flags that TorchDispatchMode sets beside the stack are the process's: a
                    # thread that ends after the GPU is gone would set them for good.
                    _python_dispatch._push_mode(allocation)
                else:
                    allocation.__enter__()
                stack.callback(switch_key, switch_key(True))
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
    return _thread.enter(is_new_thread=False)


@contextmanager
def in_new_thread() -> Iterator[None]:
    """The same for a thread that has just been started, and until it ends."""
    reason = _thread.enter(is_new_thread=True)
    try:
        yield
    finally:
        reason.leave()


def _take_out_function_mode(mode: DeviceMode) -> None:
    """Take a mode out of the thread's stack. Inside its own call it is not there: it comes back."""
    mode.retire()
    modes = overrides._get_current_function_mode_stack()
    if not any(each is mode for each in modes):
        return
    above: list[TorchFunctionMode] = []
    while (top := overrides._pop_mode()) is not mode:
        above.append(top)
    for each in reversed(above):
        overrides._push_mode(each)


def _take_out_dispatch_mode(mode: AllocationMode) -> None:
    """The same for a dispatch mode; the flags that torch keeps beside the stack stay right.

    Modes that were entered later are left and entered again by the methods of their base class,
    whatever their own do: each remembers whether there was a mode before it. Modes such as
    FakeTensorMode have places of their own at the bottom of the stack, whenever they were entered.
    """
    mode.retire()
    stack = _python_dispatch._get_current_dispatch_mode_stack()
    at = next((at for at, each in enumerate(stack) if each is mode), None)
    if at is None:
        return
    was_first = list(mode.old_dispatch_mode_flags)[:1] == [False]
    at_the_bottom = [each for each in stack[:at] if was_first and each.is_infra_mode()]
    above = stack[at + 1 :]
    push_again = [_pop(each) for each in at_the_bottom]
    push_again += reversed([_pop(each) for each in reversed(above)])
    _pop(mode)
    for push in push_again:
        push()


def _pop(top: TorchDispatchMode) -> Callable[[], object]:
    """Take the top mode from the stack. Answers how to put it back: entered, or only pushed."""
    if getattr(top, "old_dispatch_mode_flags", ()):
        TorchDispatchMode.__exit__(top, None, None, None)
        return partial(TorchDispatchMode.__enter__, top)
    _python_dispatch._pop_mode()
    return partial(_python_dispatch._push_mode, top)
