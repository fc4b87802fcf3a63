"""The seed of the hidden configurations: made once for a class, kept where learners are not."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

VARIABLE = "VRAMLAB_HIDDEN_SEED"


def hidden_seed(path: Path) -> str:
    """Read the seed from the environment or from a file, which is made if it is not there."""
    from_environment = os.environ.get(VARIABLE)
    if from_environment:
        return from_environment
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(f"{secrets.token_hex(16)}\n")
    return path.read_text().strip()


def variant_of(student: str, attempt: int = 1) -> str:
    """Name the variant of a student, or of an attempt, or of both; see `Judge.variant`.

    Args:
        student: who has hidden cases of their own; empty if all have the same.
        attempt: from the second on it has others than the first, which feedback has told.
    """
    names = [f"student {student}"] if student else []
    return "/".join([*names, *([f"attempt {attempt}"] if attempt > 1 else [])])
