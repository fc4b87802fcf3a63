"""What a block of memory is to the program. Knows nothing of torch."""

from __future__ import annotations

from enum import StrEnum


class Category(StrEnum):
    """What a block is to the program; in the order in which pictures stack them."""

    PARAMETERS = "parameters"
    BUFFERS = "buffers"
    OPTIMIZER_STATES = "optimizer states"
    GRADIENTS = "gradients"
    INPUTS = "inputs"
    WORKSPACES = "workspaces"
    OTHER = "other"
    """There before the recording began, and not watched."""
    ACTIVATIONS = "activations"
    TEMPORARIES = "temporaries"
