"""Where vramlab keeps what it has fetched or made for a user."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """Find `vramlab` in the user's cache: in $XDG_CACHE_HOME, or else in ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "vramlab"
