"""Puts onto the site what docs/explain.md runs in the browser: Python itself, and vramlab.

Python is Pyodide from npm, which `make site` fetches, and which is part of the site, so that the
page needs no other server and works without a network.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

PARTS = (
    "docs/__init__.py",
    "docs/in_browser/*.py",
    "vramlab/*.py",
    "vramlab/*.toml",
    "vramlab/allocator/**/*.py",
    "vramlab/cuda_rules/**/*.py",
    "vramlab/explaining/**/*",
    "vramlab/viz/**/*",
)
"""The files of the checkout that the page needs: what `vramlab explain` imports."""

EXAMPLE = "packages/vramlab-course/vramlab_course/lessons/l03_*/growing_texts.pickle.xz"
"""The snapshot that the page explains to a reader who has none: that of lesson 03."""

RUNTIME = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "pyodide-lock.json",
    "python_stdlib.zip",
)
"""The files of the npm package `pyodide` that a browser loads."""

FOLDER = Path("_static", "explain")
"""Where the page's scripts are."""

_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def put(root: Path, html: Path) -> bool:
    """Put the code and the runtime beside the page's scripts; return whether there is a runtime.

    Args:
        root: the checkout.
        html: the site.
    """
    (html / FOLDER).mkdir(parents=True, exist_ok=True)
    archive(root, html / FOLDER / "vramlab.zip")
    (example,) = root.glob(EXAMPLE)
    (html / FOLDER / "example.pickle.xz").write_bytes(example.read_bytes())
    fetched = root / "build" / "npm" / "node_modules" / "pyodide"
    if not fetched.is_dir():
        return False
    for name in RUNTIME:
        there = html / FOLDER / "pyodide" / name
        there.parent.mkdir(exist_ok=True)
        there.write_bytes((fetched / name).read_bytes())
    return True


def archive(root: Path, path: Path) -> None:
    """Write the page's Python code, the same bytes for the same code."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        files = {file for part in PARTS for file in root.glob(part) if file.is_file()}
        for file in sorted(files):
            if "__pycache__" not in file.parts:
                entry = zipfile.ZipInfo(file.relative_to(root).as_posix(), _LONG_AGO)
                written.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
