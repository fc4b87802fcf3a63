"""Whether a program keeps on the GPU what it keeps, or sends it to the host."""

from __future__ import annotations

from typing import Any

from vramlab.units import format_bytes
from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.repair import Run


def call_noting_transfers(run: Run) -> Any:
    """Run the program, and note how many bytes went to the host: last in `run.noted`."""
    from vramlab.measure import record_transfers

    with record_transfers() as transfers:
        returned = run.program(*run.inputs)
    run.noted.append(transfers.to_host_bytes)
    return returned


def require_stayed(run: Run, most_bytes: int, why: str) -> None:
    """Require that hardly anything went to the host in a run of `call_noting_transfers`.

    Args:
        run: which has ended.
        most_bytes: that may go there, to be looked at.
        why: says what should have been done.

    Raises:
        NotFixed: more went.
    """
    if run.noted[-1] > most_bytes:
        raise NotFixed(f"It fits, but {format_bytes(run.noted[-1])} went to the host. {why}")
