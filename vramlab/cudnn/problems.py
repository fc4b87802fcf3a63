"""What cuDNN is asked: one convolution of PyTorch's, with all that the choice depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Operation = Literal["forward", "input", "weight"]
"""What is computed: the output, the gradient of the input, or that of the weight."""

ALIGNMENT = 32
"""The most that PyTorch tells cuDNN of an address (`getAlignment` in Conv_v8.cpp)."""


@dataclass(frozen=True)
class Convolution:
    """A convolution as PyTorch describes it to cuDNN.

    Source: `CacheKeyWrapper` and `build_opgraph` in aten/src/ATen/native/cudnn/Conv_v8.cpp,
    PyTorch 2.13.

    Attributes:
        operation: what is computed.
        dtype: of all three tensors: "f32", "f16", "bf16" or "f64".
        input: its sizes: (N, C, H, W) or (N, C, D, H, W).
        weight: its sizes: (filters, C / groups, ...).
        output: its sizes.
        padding: on each side of each spatial dimension.
        stride: of each spatial dimension.
        dilation: of each spatial dimension.
        channels_last: whether the tensors lie so; else contiguous.
        deterministic: `torch.backends.cudnn.deterministic`.
        allow_tf32: whether float32 may be rounded to TF32.
        alignments: of the addresses of input, weight and output, in bytes.
    """

    operation: Operation
    dtype: str
    input: tuple[int, ...]
    weight: tuple[int, ...]
    output: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    channels_last: bool = False
    deterministic: bool = False
    allow_tf32: bool = True
    alignments: tuple[int, int, int] = (ALIGNMENT, ALIGNMENT, ALIGNMENT)

    @property
    def key(self) -> str:
        """Write it in a line, for the table: `from_key` reads it."""
        shapes = (self.input, self.weight, self.output, self.padding, self.stride, self.dilation)
        words = [self.operation, self.dtype, *("x".join(map(str, shape)) for shape in shapes)]
        words += ["channels-last"] if self.channels_last else []
        words += ["deterministic"] if self.deterministic else []
        words += [] if self.allow_tf32 else ["no-tf32"]
        if self.alignments != (ALIGNMENT, ALIGNMENT, ALIGNMENT):
            words.append("aligned-" + "-".join(map(str, self.alignments)))
        return " ".join(words)

    @classmethod
    def from_key(cls, key: str) -> Convolution:
        """Read what `key` has written.

        Raises:
            ValueError: it is none.
        """
        operation, dtype, *words = key.split(" ")
        x, w, y, padding, stride, dilation = (
            tuple(map(int, word.split("x"))) for word in words[:6]
        )
        aligned = next((word for word in words[6:] if word.startswith("aligned-")), None)
        alignments = (ALIGNMENT,) * 3 if aligned is None else map(int, aligned.split("-")[1:])
        of_x, of_w, of_y = alignments
        convolution = cls(
            operation,  # type: ignore[arg-type]
            dtype,
            x,
            w,
            y,
            padding,
            stride,
            dilation,
            channels_last="channels-last" in words,
            deterministic="deterministic" in words,
            allow_tf32="no-tf32" not in words,
            alignments=(of_x, of_w, of_y),
        )
        if convolution.key != key:
            raise ValueError(f"{key!r} is no convolution's key")
        return convolution

    def as_question(self) -> list[Any]:
        """Return what `asking.py` takes."""
        tensors = (self.input, self.weight, self.output)
        return [
            self.operation,
            self.dtype,
            *(
                [list(sizes), strides_of(sizes, self.channels_last), alignment]
                for sizes, alignment in zip(tensors, self.alignments, strict=True)
            ),
            list(self.padding),
            list(self.stride),
            list(self.dilation),
            self.deterministic,
            self.allow_tf32 or self.dtype != "f32",
        ]


def strides_of(sizes: Sequence[int], channels_last: bool) -> list[int]:
    """Return a tensor's strides: (N, C, ...) one after the other, or with the channels innermost.

    Those of dimensions of one element are what PyTorch makes of them before cuDNN sees them
    (`fixSizeOneDimStride` in aten/src/ATen/cudnn/Descriptors.h, PyTorch 2.13).
    """
    order = [*range(len(sizes))]  # outermost first
    if channels_last:
        order = [0, *range(2, len(sizes)), 1]
    strides, step = [0] * len(sizes), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= sizes[dim]
    return strides
