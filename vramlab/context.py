"""What holds something that has to be given back: a process, a file, a connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Closes itself at the end of a with statement, however that ends."""

    @abstractmethod
    def close(self) -> None:
        """Release everything that it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
