"""Stop a program after some optimizer steps: what it needs shows in the first few."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.optim import optimizer as optimizer_hooks


class StepLimitReached(BaseException):
    """The program has made as many optimizer steps as were asked for.

    No `Exception`, like SystemExit: programs that catch every exception must let it pass, while
    their `finally` blocks run.
    """


@contextmanager
def stop_after(steps: int | None) -> Iterator[None]:
    """Raise `StepLimitReached` when the body has made so many steps, of all optimizers together.

    Args:
        steps: 1 or more; None: do nothing.
    """
    made = 0

    def count(*_: Any) -> None:
        nonlocal made
        made += 1
        if made == steps:
            raise StepLimitReached

    if steps is None:
        yield
        return
    hook = optimizer_hooks.register_optimizer_step_post_hook(count)
    try:
        yield
    finally:
        hook.remove()
