"""`torch.profiler` on a virtual GPU: only the host's part is profiled, with a warning.

No kernel runs on a GPU, so CUPTI has nothing to record, and a PyTorch without CUDA complains of
each op.
"""

from __future__ import annotations

import functools
from typing import Any

import torch.profiler
from torch.autograd import profiler

from vramlab.gpu.core.patching.warning_lines import warn
from vramlab.gpu.core.session import Session


def install(session: Session) -> None:
    """Replace how a profiler begins."""
    begin = profiler.profile.__init__
    list_activities = torch.profiler.supported_activities

    @functools.wraps(begin)
    def begin_on_host(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("use_device") == "cuda" or kwargs.pop("use_cuda", False):
            warn("no time passes on a virtual GPU: the profiler records the host's part only")
            kwargs["use_device"] = None
            kwargs["use_cpu"] = True  # Kineto records nothing without any activity
        begin(self, *args, **kwargs)

    @functools.wraps(list_activities)
    def activities() -> set[torch.profiler.ProfilerActivity]:
        return {*list_activities(), torch.profiler.ProfilerActivity.CUDA}

    session.patches.set(profiler.profile, "__init__", begin_on_host)
    for module in (torch.profiler, torch.profiler.profiler):
        session.patches.set(module, "supported_activities", activities)
    session.patches.set(profiler.emit_nvtx, "__enter__", lambda marks: marks)
    session.patches.set(profiler.emit_nvtx, "__exit__", lambda marks, *exception: None)
