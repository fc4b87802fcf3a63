"""What cuDNN takes for a convolution on one GPU: from vramlab's table, or asked of its library.

Which engine computes a convolution, and what workspace it wants, cuDNN decides when it first runs:
by its version, the GPU's compute capability and all of `Convolution`. PyTorch takes the first
configuration that cuDNN names, so what cuDNN answers is what a GPU's program allocates; with
`torch.backends.cudnn.benchmark` it takes the one that is fastest, which only a clock can tell.

    VRAMLAB_CUDNN=table     asks no library: the same answers on every machine
    VRAMLAB_CUDNN=off       knows nothing of cuDNN's workspaces

Known limitation: on Hopper (capability 9.0), for some layers, cuDNN was seen to choose otherwise
with a handle of the GPU than it does with the description: docs/accuracy.md tells by how much.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from enum import Enum

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.cudnn import library, table
from vramlab.cudnn.description import cudnn_json
from vramlab.cudnn.library import CudnnProcess
from vramlab.cudnn.problems import Convolution

VERSIONS = {(2, 11): 91900, (2, 12): 92000, (2, 13): 92000}
"""The cuDNN that a PyTorch comes with, as `cudnnGetVersion` counts. Source: what torch 2.11.0,
2.12.0 and 2.13.0 for CUDA 13 require on PyPI: nvidia-cudnn-cu13 9.19.0.56, 9.20.0.48, 9.20.0.48."""

OLDEST_CAPABILITY = (7, 5)
"""On an older GPU, `torch.backends.cudnn.version()` of these builds refuses these cuDNN ("not
compatible with devices with SM < 7.5"): those need a PyTorch for CUDA 12, with another cuDNN."""

TABLES = {91900: 92000, 92000: 92000}
"""Whose table is taken for a cuDNN: 9.19.0 answers as 9.20.0 does, `benchmarks.cudnn_table --check`
asks both."""

SETTING = "VRAMLAB_CUDNN"
_CUDA_VERSION = 13000
"""What the description of a GPU says of the driver; it decides nothing."""


class Source(Enum):
    """Who said what a convolution takes."""

    TABLE = "vramlab's table of its answers"
    LIBRARY = "its own library"
    UNKNOWN = "nobody"


class Workspaces:
    """Answers for the convolutions of one GPU, and counts them."""

    def __init__(self, model: GPUModel, torch_version: tuple[int, int]) -> None:
        """Ask nothing yet.

        Args:
            model: the GPU.
            torch_version: (major, minor) of the PyTorch whose cuDNN is meant.
        """
        self._model = model
        self._version = VERSIONS.get(torch_version)
        self._answers: dict[Convolution, tuple[int | None, Source]] = {}
        self.sources: Counter[Source] = Counter()
        """How many different convolutions were answered, by whom."""
        self._has_timed = False

    def __call__(self, convolution: Convolution, *, is_timed: bool = False) -> int | None:
        """Answer what a convolution takes, in bytes; None: it is not known.

        Args:
            convolution: which.
            is_timed: whether PyTorch would time all configurations; the answer is the same.
        """
        self._has_timed |= is_timed
        if convolution not in self._answers:
            answer = self._answers[convolution] = self._find(convolution)
            self.sources[answer[1]] += 1
        return self._answers[convolution][0]

    def _find(self, convolution: Convolution) -> tuple[int | None, Source]:
        setting = os.environ.get(SETTING)
        too_old = self._model.compute_capability < OLDEST_CAPABILITY
        if self._version is None or too_old or setting == "off":
            return None, Source.UNKNOWN
        known = table.answers(TABLES[self._version], self._model.compute_capability).get(
            convolution
        )
        if known is not None:
            return known, Source.TABLE
        if (
            setting != "table"
            and (found := _library(self._version, _description(self._model))) is not None
        ):
            answered = found.ask([convolution.as_question()])
            if answered is not None and isinstance(answered[0], int):
                return answered[0], Source.LIBRARY
        return None, Source.UNKNOWN

    def told(self) -> str | None:
        """Say where the answers come from; None: there are none."""
        if not self.sources:
            return None
        parts = [
            f"{count:,} {'is' if count == 1 else 'are'} from {source.value}"
            for source, count in self.sources.items()
            if source is not Source.UNKNOWN
        ]
        if unknown := self.sources[Source.UNKNOWN]:
            parts.append(
                f"{unknown:,} {'is' if unknown == 1 else 'are'} not known and not counted "
                "(`vramlab native setup --cudnn` fetches cuDNN's library, which is then asked)"
            )
        count = sum(self.sources.values())
        version = "" if self._version is None else f" {version_text(self._version)}"
        if self._has_timed:
            parts.append(
                "torch.backends.cudnn.benchmark would time several and take the fastest, which may "
                "need more or less, and the trial takes what the largest needs"
            )
        return f"What cuDNN{version} takes for {count:,} different convolutions: {'; '.join(parts)}"


def _description(model: GPUModel) -> str:
    """Describe a GPU, or the first of the catalogue with its compute capability.

    Nothing else decides: 150 convolutions drawn by lot got the same answers for all GPUs of a
    capability in the catalogue (7.0, 8.0, 8.6, 8.9 and 9.0), of cuDNN 9.19.0 and of 9.20.0.
    """
    capability = model.compute_capability
    alike = (one for one in catalogue.models() if one.compute_capability == capability)
    return cudnn_json(next(alike, model), _CUDA_VERSION)


@functools.cache
def _library(version: int, gpu: str) -> CudnnProcess | None:
    """Find a library of exactly that version: another one may choose otherwise."""
    fitting = (one for one in library.installed() if one.version == version)
    return next((CudnnProcess(one, gpu) for one in fitting), None)


def version_text(version: int) -> str:
    """Write a version as people do: 92000 is 9.20.0."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"
