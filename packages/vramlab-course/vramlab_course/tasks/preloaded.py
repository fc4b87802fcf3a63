"""What attaching a GPU does once in a process: the pool imports this before it forks.

The catalogue, safetensors where that is installed, the look-up of operators, and the trial of what
a virtual GPU assumes of PyTorch: half of the time of a small measurement, if every fork did it
again. Nothing of it depends on what is measured.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import torch

import vramlab
from vramlab import catalogue

catalogue.models()
if find_spec("safetensors"):
    import_module("safetensors.torch")
# Where there is a GPU, backward passes start threads for it, which no fork would have.
if not torch.cuda.is_available():
    with vramlab.VirtualGPU("T4"):
        torch.ones(8, device="cuda")
