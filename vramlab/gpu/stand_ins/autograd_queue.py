"""Let go of what a backward pass that failed has left in the autograd engine's queue.

When a backward pass raises, nodes that were ready to run stay in the queue of their thread, and
with them the graph behind them and all that it saved. On CUDA the queue belongs to a thread of the
engine's own, which goes on and drops them at once. Here the backward pass runs in the program's
thread, which would look into the queue at its next backward pass only: a program that catches an
out-of-memory error and tries a smaller batch would find the memory still taken.

The engine takes ready nodes by their sequence number, highest first, and drops those whose backward
pass is over. So a backward pass over a node that is older than all of them clears the queue.

Source: `Engine::thread_main` and `ReadyQueue` in torch/csrc/autograd/engine.cpp, PyTorch 2.13.
"""

from __future__ import annotations

import threading

import torch

from vramlab.gpu.core.session import Session
from vramlab.gpu.torch_internals import current_graph_task_id, execution_engine

_own = threading.local()


def install(session: Session) -> None:
    """Arm the thread that attaches a GPU."""
    arm()


def arm() -> None:
    """Make this thread's oldest node; numbers are counted for each thread."""
    if not hasattr(_own, "oldest"):
        with torch.enable_grad():
            _own.leaf = torch.zeros((), device="cpu", requires_grad=True)
            _own.oldest = _own.leaf.clone()


def drain() -> None:
    """Clear this thread's queue; nothing happens where `arm` was not called.

    Nor inside of another backward pass, whose nodes are in the queue as well.
    """
    if not hasattr(_own, "oldest") or current_graph_task_id() != -1:
        return
    engine = execution_engine()
    gradient = (_own.oldest.detach(),)
    engine.run_backward((_own.oldest,), gradient, True, False, (_own.leaf,), accumulate_grad=False)
