"""Let torchvision load where its C++ library cannot: its usual wheels want PyTorch's CUDA build.

Its models and transforms are Python. Without the library, its import fails only because ops are
not there to which it gives shapes and gradients. They are declared here; where they run on a GPU
without values, torchvision's own functions say the shapes of their results. On the CPU they cannot
run.

Source: `m.def` in torchvision/csrc/ops/*.cpp, and `register_meta` in its _meta_registrations.py,
torchvision 0.28. Earlier ones have their gradients in C++, and are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch

from vramlab.gpu.core.patching.late_imports import changed_when_imported
from vramlab.gpu.core.session import Session

_POOL = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_SHAPE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_STEPS = (
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, "
    "SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask"
)
_FILTERS = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias"
_SAMPLED = f"(Tensor input, Tensor rois, {_POOL}, int sampling_ratio, bool aligned) -> Tensor"

_SCHEMAS = (
    f"nms{_BOXES}",
    f"qnms{_BOXES}",
    f"roi_align{_SAMPLED}",
    f"qroi_align{_SAMPLED}",
    f"_roi_align_backward(Tensor grad, Tensor rois, {_POOL}, {_SHAPE}, int sampling_ratio, "
    "bool aligned) -> Tensor",
    f"roi_pool(Tensor input, Tensor rois, {_POOL}) -> (Tensor, Tensor)",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_POOL}, {_SHAPE}) -> Tensor",
    f"ps_roi_align(Tensor input, Tensor rois, {_POOL}, int sampling_ratio) -> (Tensor, Tensor)",
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_POOL}, "
    f"int sampling_ratio, {_SHAPE}) -> Tensor",
    f"ps_roi_pool(Tensor input, Tensor rois, {_POOL}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_POOL}, {_SHAPE}) "
    "-> Tensor",
    f"deform_conv2d({_FILTERS}, {_STEPS}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_FILTERS}, {_STEPS}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
    "_cuda_version() -> int",
)

_NO_CUDA = -1
"""What `_cuda_version` answers where torchvision was built without CUDA."""


def install(session: Session) -> AbstractContextManager[None]:
    """Declare the ops, if torchvision finds none of its own when it is imported."""
    return loading()


@contextmanager
def loading() -> Iterator[None]:
    """Let torchvision be imported in the with statement, also where no GPU is attached."""
    with changed_when_imported({"torchvision.extension": _declare_ops_of}):
        yield


def _declare_ops_of(extension: ModuleType) -> None:
    if extension._has_ops() or find_spec("torchvision._autograd_registrations") is None:
        return
    _declared()
    extension._has_ops = lambda: True  # type: ignore[attr-defined]


@cache
def _declared() -> torch.library.Library:
    """Declare the ops for as long as the process lives, as torchvision itself is imported once."""
    library = torch.library.Library("torchvision", "DEF")
    for schema in _SCHEMAS:
        library.define(schema)
    library.impl("_cuda_version", lambda: _NO_CUDA, "CompositeExplicitAutograd")
    return library
