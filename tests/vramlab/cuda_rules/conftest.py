"""What every test of CUDA's arithmetic is given."""

from __future__ import annotations

from kernel_events import events, takes

__all__ = ["events", "takes"]
