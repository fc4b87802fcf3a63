"""The PyTorch whose numbers the course teaches."""

from __future__ import annotations

RULES = "2.13"
"""Exercises and explorers measure on virtual GPUs that follow it, whichever PyTorch is installed.

From 2.14 on memory-efficient attention has its seed and offset on the GPU, and from 2.15 on each
matrix product takes a workspace for itself alone, which formulas of peaks leave out.
"""
