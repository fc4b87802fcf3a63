"""safetensors files of tensors that have no values, as `save_pretrained` writes them.

Where such a file may be written at all (`ValuePolicy.save`), it has the header of a real one, and
zeros instead of values: a hole that takes no room on disks that can have files with holes.

Source of the format: "Format" in the README of huggingface/safetensors.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vramlab.gpu.core.session import Session
from vramlab.gpu.core.storage_record import has_values, record_of
from vramlab.gpu.torch_internals import DisableTorchFunction

_ALIGNMENT_BYTES = 8


@dataclass(frozen=True)
class _Shapes:
    """What is left to write of tensors of which one at least has no values."""

    tensors: Mapping[str, torch.Tensor]

    def header(self, metadata: Mapping[str, str] | None) -> bytes:
        """Make the file without its data: the length of the description, and the description."""
        from safetensors.torch import _TYPES

        names = {dtype: name for name, dtype in _TYPES.items()}
        description: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
        start = 0
        for name, tensor in self.tensors.items():
            end = start + tensor.numel() * tensor.dtype.itemsize
            description[name] = {
                "dtype": names[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [start, end],
            }
            start = end
        text = json.dumps(description, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _ALIGNMENT_BYTES)
        return len(text).to_bytes(8, "little") + text

    @property
    def data_bytes(self) -> int:
        return sum(tensor.numel() * tensor.dtype.itemsize for tensor in self.tensors.values())


def install(session: Session) -> None:
    """Let safetensors, where it is installed, save tensors without values."""
    values, patches = session.values, session.patches
    if importlib.util.find_spec("safetensors") is None:
        return
    library: Any = importlib.import_module("safetensors.torch")

    def flattening(flatten: Callable[..., Any]) -> Callable[..., Any]:
        def flatten_or_keep(tensors: Mapping[str, torch.Tensor], *rest: Any) -> Any:
            with DisableTorchFunction():
                lost = [t for t in tensors.values() if record_of(t) and not has_values(t)]
                if not lost:
                    return flatten(tensors, *rest)
                for tensor in lost:
                    values.save(tensor)
            return _Shapes(tensors)

        return flatten_or_keep

    serialize, serialize_file = library.serialize, library.serialize_file

    def to_bytes(data: Any, metadata: Mapping[str, str] | None = None) -> bytes:
        if isinstance(data, _Shapes):
            return data.header(metadata) + bytes(data.data_bytes)
        plain: bytes = serialize(data, metadata=metadata)
        return plain

    def to_file(data: Any, filename: Any, metadata: Mapping[str, str] | None = None) -> None:
        if not isinstance(data, _Shapes):
            serialize_file(data, filename, metadata=metadata)
            return
        header = data.header(metadata)
        with Path(filename).open("wb") as file:
            file.write(header)
            file.truncate(len(header) + data.data_bytes)

    for name in ("_flatten", "_flatten_as_ptr"):  # as the versions of safetensors call it
        if hasattr(library, name):
            patches.set(library, name, flattening(getattr(library, name)))
    patches.set(library, "serialize", to_bytes)
    patches.set(library, "serialize_file", to_file)
