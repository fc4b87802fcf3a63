"""`torch.profiler` on a virtual GPU: the host's part is profiled, and the program is told so.

No kernel runs on a GPU, so CUPTI has nothing to record, and a PyTorch without CUDA complains of
each op.
"""

from __future__ import annotations

import functools
from typing import Any

from torch.autograd import profiler

from vramlab.gpu.core.session import Session
from vramlab.gpu.core.warning_lines import warn


def install(session: Session) -> None:
    """Replace how a profiler begins."""
    begin = profiler.profile.__init__

    @functools.wraps(begin)
    def begin_on_host(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("use_device") == "cuda" or kwargs.pop("use_cuda", False):
            warn("no time passes on a virtual GPU: the profiler records the host's part only")
            kwargs["use_device"] = None
        begin(self, *args, **kwargs)

    session.patches.set(profiler.profile, "__init__", begin_on_host)
