"""Measure the libraries of some lessons on the GPU that is there, and keep what was found.

vramlab native run --gpu A100-80GB -m vramlab_course.libraries 16 25
"""

from __future__ import annotations

import sys
from importlib import import_module

import torch

import vramlab
from vramlab.gpu import attached
from vramlab.native.choice import is_inside
from vramlab_course.libraries.results import save_rows

LESSONS = (
    "04",
    "10",
    "11",
    "12",
    "13",
    "15",
    "16",
    "17",
    "18",
    "19",
    "20",
    "24",
    "25",
    "26",
    "27",
    "28",
)


def main(lessons: list[str]) -> None:
    """Measure these lessons' libraries, all if there are none."""
    if unknown := set(lessons) - set(LESSONS):
        raise SystemExit(f"no libraries are measured for lesson {min(unknown)!r}; use {LESSONS}")
    if not torch.cuda.is_available():
        vramlab.attach("A100-80GB", quiet=True)
    engine = "real GPU" if attached() is None else "portable engine"
    engine = "native engine" if is_inside() else engine
    conditions = f"PyTorch {torch.__version__}, {engine}, {torch.cuda.get_device_name()}"
    for lesson in lessons or LESSONS:
        module = import_module(f"vramlab_course.libraries.lesson_{lesson}")
        rows = module.measure()
        save_rows(lesson, getattr(module, "CONDITIONS", conditions), rows)
        for row in rows:
            print(lesson, row.name, dict(row.sizes_bytes))


if __name__ == "__main__":
    main(sys.argv[1:])
