"""`your_script`: what a lesson teaches, on the learner's own training script.

What ran in earlier lessons is kept in a file in the learner's own folder for such data, and nowhere
else. Deleting the file starts afresh.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import platformdirs

from vramlab_course.experiments.your_script import (
    FIRST_LESSON,
    ScriptRun,
    run_bundled,
    run_script,
)
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import size_label
from vramlab_course.plots.your_script import draw_your_script
from vramlab_course.translations.speech import say

GPU = "RTX-3090"


def your_script(lesson: str, command: str | None = None, *, gpu: str | None = None) -> Picture:
    """Run your own script as `vramlab run` does, and draw its peak beside its earlier ones.

    Without a command, the script that you named last runs again. Until you name one, GPT-2 small
    runs (`vramlab_course.programs.minigpt`), with what the lessons so far have changed in it.

    Args:
        lesson: the lesson's number, such as '05'.
        command: your script and its options, such as 'train.py --batch-size 4'. It is stopped after
            a few training steps.
        gpu: GPU to simulate, as listed by `vramlab gpus`; None: the last one, at first an RTX 3090.

    Raises:
        ValueError: That is no lesson which has this cell.
        UnusableScript: There is no such file, the script failed, or it used no GPU.
        UnknownGPUError: The GPU is not in the catalogue.
    """
    if not re.fullmatch(r"\d\d", lesson) or lesson < FIRST_LESSON:
        raise ValueError(f"lesson {lesson!r}: give its number, from {FIRST_LESSON!r} on")
    kept = _read()
    if command is None and kept:
        command, gpu = kept[-1].command, gpu or kept[-1].gpu
    if command is None:
        runs = run_bundled(lesson, gpu=gpu or GPU)
    else:
        run = run_script(lesson, command, gpu=gpu or GPU)
        runs = [each for each in kept if each.lesson != lesson] + [run]
        _write(runs)
    _tell(runs[-1])
    return draw_your_script(sorted(runs, key=lambda each: each.lesson))


def _tell(run: ScriptRun) -> None:
    print(f"$ vramlab run --gpu {run.gpu} {run.command}")
    needed, total = size_label(run.needed_bytes), size_label(run.total_bytes)
    if run.fits:
        print(say("It fits: it needs {needed} of {total}.", needed=needed, total=total))
    else:
        print(say("It does not fit into {total}.", total=total))
    print(say("Most of the allocated memory comes from:"))
    for size_bytes, where, text in run.lines:
        print(f"{size_label(size_bytes):>10}  {where}  {text}")


def _path() -> Path:
    return platformdirs.user_data_path("vramlab", appauthor=False) / "your_script.json"


def _read() -> list[ScriptRun]:
    """Read what ran before; nothing if the file is missing or not ours."""
    try:
        runs = json.loads(_path().read_text(encoding="utf-8"))
        return [ScriptRun(**run, lines=()) for run in runs]
    except (OSError, ValueError, TypeError):
        return []


def _write(runs: list[ScriptRun]) -> None:
    path = _path()
    kept = [{name: what for name, what in asdict(run).items() if name != "lines"} for run in runs]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}.new")
        new.write_text(json.dumps(kept, indent=1, ensure_ascii=False), encoding="utf-8")
        os.replace(new, path)
    except OSError as error:
        print(say("The run could not be written down: {error}.", error=error))
