"""Lesson 30: what each of a few harmless lines holds after a step."""

from __future__ import annotations

import gc
from collections.abc import Mapping

from vramlab.cuda_rules.sizes import MIN_BLOCK_BYTES
from vramlab.garbage import no_garbage_collection
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l30_hunting_a_leak.leaks import FACTOR, LENGTHS, LeakyTraining

_WARM_UP = len(LENGTHS)
"""Steps before anything is counted: cuBLAS has its workspaces, and the cache all its masks."""


def held_each_step_bytes(rows: int, width: int) -> Mapping[str, int]:
    """Return what each leak holds more after every step, by its name, once it goes on for a while.

    A check's graph holds the batch, the input of GELU and its output, and what is squared.

    Args:
        rows, width: of a batch, which takes a multiple of 2 MiB.
    """
    batch_bytes = 4 * rows * width
    scalar_bytes = MIN_BLOCK_BYTES
    return {
        "none": 0,
        "losses": scalar_bytes,
        "checks": (1 + FACTOR + FACTOR + 1) * batch_bytes + scalar_bytes,
        "hooks": batch_bytes,
        "masks": 0,
        "errors": batch_bytes + scalar_bytes,
    }


@experiment(
    "leaks",
    lesson="30",
    question="What do a few harmless lines hold more after every step?",
    source="PyTorch's documentation: FAQ; Understanding CUDA Memory Usage",
)
def leaks(rows: int = 4096, width: int = 512, steps: int = 4) -> Outcome:
    """Train with each line in turn; Python's garbage collector does not run meanwhile.

    Args:
        rows, width: of a batch.
        steps: that are measured.
    """
    trial = Trial("leaks", rows=rows, width=width, steps=steps)
    with no_garbage_collection():
        for leak, each_bytes in held_each_step_bytes(rows, width).items():
            training = LeakyTraining(leak, rows, width)
            for _ in range(_WARM_UP):
                training.step()
            with trial.stage(leak, expected("growth", steps * each_bytes)):
                for _ in range(steps):
                    training.step()
            del training
    gc.collect()  # the errors, and with them the last training
    return trial.outcome()
