"""What the core expects of the code that replaces values that do not exist: `ops/values.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from vramlab.gpu.core.storage_record import Scalar


class ValuePolicy(ABC):
    """Decides what a program gets where it reads a value that does not exist."""

    @abstractmethod
    def read(self, what: str, tensor: torch.Tensor) -> Scalar:
        """Answer `tensor.item()`, or raise."""

    @abstractmethod
    def read_array(self, what: str, tensor: torch.Tensor) -> Scalar:
        """Answer for every element of an array that NumPy gets, or raise."""

    @abstractmethod
    def truth(self, what: str, healthy: bool, tensor: torch.Tensor) -> bool:
        """Answer a question such as `torch.equal`, or raise."""

    @abstractmethod
    def assume_all(self, what: str, tensor: torch.Tensor) -> None:
        """Allow that a result whose shape depends on values is as large as can be, or raise."""

    @abstractmethod
    def save(self, tensor: torch.Tensor) -> None:
        """Allow that a tensor without values is saved, or raise."""
