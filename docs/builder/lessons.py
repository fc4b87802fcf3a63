"""Runs lessons and keeps what they show.

A lesson runs again only when it, the package or the lock has changed. Lessons run beside each
other, each in a kernel of its own, on virtual GPUs whatever the machine has, so that the site is
the same wherever it is built.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from vramlab.progress import working

LIMIT_S = 600
"""For one cell. A lesson takes half a minute on an idle machine; builders are not always idle."""

WIDGET = "application/vnd.jupyter.widget-view+json"

Notebook = Any


class LessonFailed(Exception):
    """A lesson cannot be shown: a cell failed, or wrote to stderr."""


def run_all(lessons: Sequence[Path], kept: Path, root: Path) -> dict[Path, Path]:
    """Run what is not kept yet, and return where each lesson's run is.

    Args:
        lessons: notebooks, which are left as they are.
        kept: folder for what they show; made if it is not there.
        root: the checkout, whose package the lessons import.

    Raises:
        ExceptionGroup: of one `LessonFailed` for each lesson that failed; the others are kept.
    """
    kept.mkdir(parents=True, exist_ok=True)
    rest = fingerprint(root)
    runs = {path: kept / f"{path.stem}.{_key(path, rest)}.ipynb" for path in lessons}
    missing = [path for path in lessons if not runs[path].exists()]
    print(f"lessons: {len(lessons) - len(missing)} unchanged, {len(missing)} to run", flush=True)
    failures = []
    with working("running lessons") as step:
        for done, (path, outcome, seconds) in enumerate(_run_beside_each_other(missing, root), 1):
            error = outcome.exception()
            step.say(
                f"lessons: {done} of {len(missing)}, {path.stem}, {seconds:.0f} s"
                f"{', FAILED' if error else ''}"
            )
            if isinstance(error, LessonFailed):
                failures.append(error)
                continue
            for outdated in kept.glob(f"{path.stem}.*.ipynb"):
                outdated.unlink()
            nbformat.write(outcome.result(), runs[path])
    if failures:
        raise ExceptionGroup("lessons failed", failures)
    return runs


def fingerprint(root: Path) -> str:
    """A hash of all that a lesson's outputs depend on beside the lesson: packages, lock, Python."""
    digest = hashlib.sha256(sys.version.encode())
    packages = (path for path in root.glob("vramlab*/**/*") if path.suffix != ".pyc")
    for path in (root / "requirements.txt", *sorted(path for path in packages if path.is_file())):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _key(lesson: Path, rest: str) -> str:
    return hashlib.sha256(lesson.read_bytes() + rest.encode()).hexdigest()[:16]


def _run_beside_each_other(
    lessons: Sequence[Path], root: Path
) -> Iterator[tuple[Path, Future[Notebook], float]]:
    """Yield lessons as they are done, with their outcome and the seconds since the first began."""
    began = time.monotonic()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with ThreadPoolExecutor(cores) as pool:
        # Later lessons take longest: they come first, so that no core is left with one alone.
        futures = {pool.submit(run, path, root): path for path in reversed(lessons)}
        for future in as_completed(futures):
            yield futures[future], future, time.monotonic() - began


def run(path: Path, root: Path) -> Notebook:
    """Run one lesson from top to bottom, in its folder, and return it with its outputs.

    Raises:
        LessonFailed: a cell failed, took too long or wrote to stderr.
    """
    lesson = nbformat.read(path, as_version=4)
    client = NotebookClient(
        lesson,
        timeout=LIMIT_S,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        # A kernel's own remarks, such as on encryption, would get between the lines of progress.
        extra_arguments=["--IPKernelApp.log_level=40"],
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        asyncio.run(client.async_execute(env=_environment(root)))
    except (CellExecutionError, TimeoutError) as error:
        raise LessonFailed(f"{path.name}: {error}") from error
    for cell in lesson.cells:
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                raise LessonFailed(f"{path.name}, cell {cell.id}, wrote to stderr: {output.text}")
            # No kernel stands behind a page; what is there for such readers stays.
            output.get("data", {}).pop(WIDGET, None)
    return lesson


def _environment(root: Path) -> dict[str, str]:
    """The environment of a kernel: no real GPU, this checkout, and a core for each lesson."""
    mine = {"VRAMLAB_GPU", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}
    inherited = {name: value for name, value in os.environ.items() if name not in mine}
    return {
        **inherited,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(root),
    }
