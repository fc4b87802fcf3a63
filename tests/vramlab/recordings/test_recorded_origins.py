"""What frames of a memory history show about an allocation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from vramlab import zoo
from vramlab.recordings.origins import AllocationOrigin, OriginReader

MODULE_PY = str(Path(torch.__file__).parent / "nn" / "modules" / "module.py")
TORCHVISION_PY = str(Path(torch.__file__).parents[1] / "torchvision" / "resnet.py")
SUBJECTS_PY = str(Path(zoo.__file__).with_name("subjects.py"))


def frames(*names: str | tuple[str, int, str]) -> list[dict[str, Any]]:
    """Frames from innermost to outermost; a text alone is the name of a C++ function."""
    whole = [("libtorch.so", 0, each) if isinstance(each, str) else each for each in names]
    return [{"filename": file, "line": line, "name": name} for file, line, name in whole]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        # As a CUDA build tells a Linear layer's forward pass.
        (
            frames(
                "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(...)",
                "at::detail::empty_cuda(c10::ArrayRef<long>, c10::ScalarType)",
                "at::native::structured_addmm_out_cuda::impl(at::Tensor const&)",
                "??",
                "at::_ops::addmm::redispatch(c10::DispatchKeySet, at::Tensor const&)",
                "torch::autograd::VariableType::(anonymous namespace)::addmm(...)",
                "at::_ops::addmm::call(at::Tensor const&, at::Tensor const&)",
                "at::_ops::linear::call(at::Tensor const&)",
                (MODULE_PY, 1779, "_call_impl"),
                (SUBJECTS_PY, 70, "Network.forward"),
                ("/home/ada/train.py", 3, "<module>"),
            ),
            AllocationOrigin(
                "linear > addmm",
                "at::native::structured_addmm_out_cuda::impl",
                "",
                "subjects.py:70 forward",
            ),
        ),
        # The backward pass runs on a thread of its own; ops further out are another thread's.
        (
            frames(
                "at::native::sum_cuda(at::Tensor const&)",
                "at::_ops::sum_dim_IntList::call(at::Tensor const&)",
                "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)",
                "torch::autograd::Engine::thread_main(...)",
                "at::_ops::never::call(...)",
            ),
            AllocationOrigin("sum_dim_IntList", "at::native::sum_cuda", "AddmmBackward0", ""),
        ),
        # As the virtual GPU records what a rule takes.
        (
            frames("vramlab::take(staging buffer)", "at::_ops::sum::call"),
            AllocationOrigin("sum", "staging buffer", "", ""),
        ),
        ([], AllocationOrigin("", "", "", "")),
    ],
)
def test_frames_become_an_origin(told: list[dict[str, Any]], expected: AllocationOrigin) -> None:
    assert OriginReader().read(told) == expected


def test_a_package_whose_name_begins_with_torch_has_lines() -> None:
    told = frames((MODULE_PY, 1779, "_call_impl"), (TORCHVISION_PY, 3, "ResNet.forward"))
    assert OriginReader().read(told) == AllocationOrigin("", "", "", "resnet.py:3 forward")


def test_an_origin_in_words() -> None:
    origin = AllocationOrigin("linear > addmm", "gemm", "AddmmBackward0", "train.py:3 step")
    assert str(origin) == "linear > addmm, in AddmmBackward0, by gemm, at train.py:3 step"
    assert str(AllocationOrigin("", "", "", "")) == "no op"
