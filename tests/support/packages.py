"""Where the three packages are."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def folder_of(package: str) -> Path:
    """Find a package's folder without importing it."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


FOLDERS = {name: folder_of(name) for name in ("vramlab", "vramlab_classroom", "vramlab_course")}
