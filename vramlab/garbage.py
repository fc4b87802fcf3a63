"""When Python looks for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Look for no garbage for a while.

    For imports, which make much that stays: collections would find nothing, and go over all of it
    again and again, a quarter of the time that importing torch takes. And where memory is recorded:
    what a step frees would differ by chance.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def lasting_imports() -> Iterator[None]:
    """Look for no garbage while much is imported, nor later in what is there at the end."""
    with no_garbage_collection():
        yield
        gc.freeze()  # before the next allocation would look at all of it
