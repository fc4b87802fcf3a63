"""The entries that these tests record: small ones of each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vramlab.recordings.store import RecordingFile

GPU = "A100-40GB"
TORCH = "2.11"
TRAINING = "zoo/mlp-1024x4-b256-fp32-sgd"
INFERENCE = "zoo/mlp-1024x4-b256-fp32-infer"
EXPERIMENT = "experiment/three-linear"

Recorder = Callable[[Sequence[str]], RecordingFile]
