"""Whether a program keeps on the GPU what it keeps, or sends it to the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vramlab.units import format_bytes
from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.repair import Run


@contextmanager
def noting_transfers(run: Run) -> Iterator[None]:
    """Note how many bytes go to the host in the body: last in `run.noted`."""
    from vramlab.measure import record_transfers

    with record_transfers() as transfers:
        yield
    run.noted.append(transfers.to_host_bytes)


def call_noting_transfers(run: Run) -> Any:
    """Run the program, and note how many bytes go to the host."""
    with noting_transfers(run):
        return run.program(*run.inputs)


def require_stayed(run: Run, most_bytes: int, why: str) -> None:
    """Require that hardly anything went to the host where `noting_transfers` looked.

    Args:
        run: whose transfers are noted.
        most_bytes: that may go there, to be looked at.
        why: says what should have been done.

    Raises:
        NotFixed: more went.
    """
    if run.noted[-1] > most_bytes:
        raise NotFixed(f"It fits, but {format_bytes(run.noted[-1])} went to the host. {why}")
