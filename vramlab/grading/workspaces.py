"""What libraries take on first use: had before anything is measured, it counts as nobody's."""

from __future__ import annotations


def take_workspaces() -> None:
    """Let both threads, of forward and of backward, take cuBLAS's workspaces."""
    import torch

    small = torch.ones(8, 8, device="cuda", requires_grad=True)
    (small @ small).sum().backward()
