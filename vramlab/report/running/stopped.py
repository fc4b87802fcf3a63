"""The exception that ends a program from outside."""

from __future__ import annotations


class Stopped(BaseException):
    """The program is to end now.

    No `Exception`, like SystemExit: programs that catch every exception must let it pass, while
    their `finally` blocks run.

    Attributes:
        by: the option or the signal that asks for it, such as `--steps` or `SIGTERM`.
        status: the exit status that it ends with.
    """

    def __init__(self, by: str, status: int = 0) -> None:
        super().__init__(by)
        self.by = by
        self.status = status
