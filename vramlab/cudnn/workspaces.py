"""What cuDNN takes for a convolution on one GPU: from vramlab's table, or asked of its library.

Which engines can compute a convolution, and what workspaces they want, cuDNN decides when it first
runs: by its version, the GPU's compute capability and all of `Convolution`. Which of them PyTorch
executes, `plans.py` knows; with `torch.backends.cudnn.benchmark` it is the one that is fastest,
which only a clock can tell.

    VRAMLAB_CUDNN=table     asks no library: the same answers on every machine
    VRAMLAB_CUDNN=off       knows nothing of cuDNN's workspaces

Known limitation: on Hopper (capability 9.0), for some layers, cuDNN was seen to choose otherwise
with a handle of the GPU than it does with the description: docs/accuracy.md tells by how much.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Sequence
from enum import Enum

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.cudnn import library, table
from vramlab.cudnn.description import cudnn_json
from vramlab.cudnn.library import CudnnProcess
from vramlab.cudnn.problems import Convolution

VERSIONS = {
    (2, 10): 91002,
    (2, 11): 91900,
    (2, 12): 92000,
    (2, 13): 92000,
    (2, 14): 92400,
    (2, 15): 92600,
}
"""The cuDNN that a PyTorch comes with, as `cudnnGetVersion` counts. Source: what the wheels on PyPI
require: torch 2.10.0, for CUDA 12, nvidia-cudnn-cu12 9.10.2.21; for CUDA 13 nvidia-cudnn-cu13, of
2.11.0 9.19.0.56, of 2.12.0 and 2.13.0 9.20.0.48, of 2.14.1 9.24.0.43, of 2.15.0 9.26.0.51."""

OLDEST_CAPABILITIES = {
    91002: (7, 0),
    91900: (7, 5),
    92000: (7, 5),
    92400: (7, 5),
    92600: (7, 5),
}
"""The oldest GPUs of these PyTorch builds. On a V100, `torch.backends.cudnn.version()` of those for
CUDA 13 refuses their cuDNN ("not compatible with devices with SM < 7.5"); 2.10.0 runs.
"""

TABLES = {91002: 91002, 91900: 92000, 92000: 92000, 92400: 92400, 92600: 92600}
"""Whose table is taken for a cuDNN: 9.19.0 answers as 9.20.0 does, `benchmarks.cudnn_table --check`
asks both. Of 9.10.2 there is one for capability 7.0 alone."""

_OWN_TABLES_FROM = (2, 11)
"""For PyTorch before, whose cuDNN is not known or was asked for one capability, the oldest cuDNN
that answers stands for it. Its heuristics changed in between: it is an assumption, and the report
says so."""

SETTING = "VRAMLAB_CUDNN"
_CUDA_VERSION = 13000
"""What the description of a GPU says of the driver; it decides nothing."""


class Source(Enum):
    """Where a convolution's workspace size comes from."""

    TABLE = "vramlab's table of its answers"
    LIBRARY = "its own library"
    ASSUMED = "a later cuDNN, as an assumption"
    UNKNOWN = "unknown"


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
        self._may_assume = torch_version < _OWN_TABLES_FROM
        self._answers: dict[tuple[Convolution, bool], tuple[Sequence[int] | None, Source]] = {}
        self.sources: Counter[Source] = Counter()
        """How many different convolutions were answered, by whom."""
        self._has_timed = False

    @property
    def unknown_count(self) -> int:
        """How many different convolutions have a workspace that is not known, and not counted."""
        return self.sources[Source.UNKNOWN]

    def __call__(
        self, convolution: Convolution, *, benchmark: bool = False
    ) -> Sequence[int] | None:
        """Return the workspaces of cuDNN's plans in bytes, best plan first; None: not known.

        Args:
            convolution: what is computed.
            benchmark: whether PyTorch times the plans, so that all of them count.
        """
        self._has_timed |= benchmark
        asked = convolution, benchmark
        if asked not in self._answers:
            answer = self._answers[asked] = self._find(convolution, benchmark)
            self.sources[answer[1]] += (convolution, not benchmark) not in self._answers
        return self._answers[asked][0]

    def _find(
        self, convolution: Convolution, benchmark: bool
    ) -> tuple[Sequence[int] | None, Source]:
        if os.environ.get(SETTING) == "off":
            return None, Source.UNKNOWN
        if (found := self._ask(self._version, convolution, benchmark)) is not None:
            return found
        for version in sorted(OLDEST_CAPABILITIES) if self._may_assume else ():
            if (found := self._ask(version, convolution, benchmark)) is not None:
                return found[0], Source.ASSUMED
        return None, Source.UNKNOWN

    def _ask(
        self, version: int | None, convolution: Convolution, benchmark: bool
    ) -> tuple[Sequence[int], Source] | None:
        """Return what one cuDNN answers, by the table or its library; None: not known."""
        capability = self._model.compute_capability
        if version is None or capability < OLDEST_CAPABILITIES[version]:
            return None
        known = table.answers(TABLES[version], capability).get(convolution)
        if known is not None:
            return known, Source.TABLE
        if (
            os.environ.get(SETTING) != "table"
            and (found := _library(version, _description(self._model, benchmark))) is not None
        ):
            answered = found.ask([convolution.as_question()])
            if answered is not None and not isinstance(answered[0], str):
                return answered[0], Source.LIBRARY
        return None

    def origins_text(self) -> str | None:
        """Describe where the answers come from; None: there are none."""
        if not self.sources:
            return None
        parts = [
            f"{count:,} {'is' if count == 1 else 'are'} from {source.value}"
            for source, count in self.sources.items()
            if source is not Source.UNKNOWN
        ]
        if unknown := self.unknown_count:
            parts.append(
                f"{unknown:,} {'is' if unknown == 1 else 'are'} not known and not counted "
                "(`vramlab native setup --cudnn` fetches cuDNN's library, which is then asked)"
            )
        count = sum(self.sources.values())
        version = "" if self._version is None else f" {version_text(self._version)}"
        if self._has_timed:
            parts.append(
                "torch.backends.cudnn.benchmark times them and keeps the fastest; here it keeps "
                "the first, so that later steps may need more or less (the trial itself is counted)"
            )
        return f"What cuDNN{version} takes for {count:,} different convolutions: {'; '.join(parts)}"


def _description(model: GPUModel, benchmark: bool) -> str:
    """Describe a GPU, or without a benchmark the first of the catalogue with its capability.

    The capability alone decides the first plan: 150 random convolutions got the same answers
    for all GPUs of a capability in the catalogue (7.0, 8.0, 8.6, 8.9 and 9.0), of cuDNN 9.19.0 and
    of 9.20.0, and 100 for RTX-5060 and RTX-5090, of 9.20.0. Of the other plans, H100 and H200
    differ in 5 of 49 convolutions of the table, in the largest workspace of one; A100s, L4 and
    RTX-4090, and the GPUs of capability 8.6 in none.
    """
    if benchmark:
        return cudnn_json(model, _CUDA_VERSION)
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
