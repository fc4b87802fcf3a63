"""What attaching a GPU loads besides modules of torch: the bench imports it before it forks.

The catalogue, and safetensors where that is installed: a fifth of the time of a small measurement
or trial, if every fork did it anew.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from vramlab import catalogue

catalogue.models()
if find_spec("safetensors"):
    import_module("safetensors.torch")
