"""Exact peaks of plans, computed once and cached in the user's cache folder.

The file holds nothing but peaks by a digest of the plan, of PyTorch's and vramlab's version and of
the environment that the allocator reads. A development copy of vramlab is told from a release by
the times of its files.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import vramlab
from vramlab import user_cache
from vramlab.planner.estimate import estimate
from vramlab.planner.plan import Plan

MOST = 5000
"""Peaks that are kept, the latest ones: a file of about 500 kB."""
ENVIRONMENT = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG")
"""Variables that change what is allocated."""


class Peak(NamedTuple):
    """What a search needs of `vramlab.planner.estimate.Estimate`."""

    peak_bytes: int
    runs_out: bool


class Cache:
    """Peaks of plans, read from a file and written to it at the end of the with statement.

    A file that cannot be read or written is ignored.

    Args:
        file: Where peaks are; by default `plans.json` in the user's cache.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = user_cache.folder() / "plans.json" if file is None else file
        self._peaks: dict[str, Peak] = {}
        self._is_changed = False

    def __enter__(self) -> Cache:
        with suppress(OSError, ValueError, TypeError, AttributeError):
            read = json.loads(self._file.read_text(encoding="utf-8"))
            self._peaks = {
                str(key): Peak(int(size), bool(out)) for key, (size, out) in read.items()
            }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_changed:
            return
        latest = dict(list(self._peaks.items())[-MOST:])
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            # Another process that reads or writes the file sees all of it or none.
            handle, name = tempfile.mkstemp(dir=self._file.parent, prefix="plans-")
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(latest, stream)
            Path(name).replace(self._file)

    def peak(self, plan: Plan) -> Peak:
        """Return the exact peak of a plan, computed if it is not in the cache."""
        key = digest(plan)
        found = self._peaks.pop(key, None)
        if found is None:
            estimated = estimate(plan)
            found = Peak(estimated.peak_bytes, estimated.runs_out)
            self._is_changed = True
        self._peaks[key] = found  # the latest one is the last one
        return found


def digest(plan: Plan) -> str:
    """Return the key of a plan: everything that its peak depends on, in 32 digits."""
    environment = [os.environ.get(name, "") for name in ENVIRONMENT]
    text = repr((plan, plan.model, *environment, *_versions()))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def _versions() -> tuple[object, ...]:
    folder = Path(vramlab.__file__).parent
    files = list(folder.rglob("*.py"))
    latest = max(file.stat().st_mtime_ns for file in files)
    return version("torch"), version("vramlab"), str(folder), len(files), latest
