"""Offloading: what it moves, what stays on the GPU, and when computation hides the transfers.

Hidden means: while the link carries bytes, the GPU computes at least as long. Both times are the
least that the catalogue allows (`vramlab.cuda_rules.durations`).
"""

from __future__ import annotations

from typing import Literal

from vramlab.catalogue import GPUModel
from vramlab.cuda_rules.durations import Arithmetic, peak_flops_per_s
from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes

Saving = Literal["on the GPU", "save_on_cpu", "each once"]
"""Where autograd's saved tensors are: as usual; `torch.autograd.graph.save_on_cpu`; on the host,
but each tensor once, and no parameters (`vramlab.programs.offloading.SavedOnHost`)."""

HELD_PER_PARAMETER = {"all on the GPU": 16, "optimizer on the host": 4, "gradients leave": 2}
"""Bytes for each parameter on the GPU, in mixed precision with Adam.

All: 2 parameter, 2 gradient, 4 float32 copy, 8 states. With the optimizer on the host the first
two; if each gradient leaves as soon as it is there, the parameter alone.
Source: ZeRO-Offload, arXiv 2101.06840, section 3 and table 1.
"""

FLOPS_PER_PARAMETER_AND_TOKEN = 6
"""Forward 2, backward 4: for layers of matrix products, attention's own products left out."""


def kept_after_forward_bytes(saving: Saving, layers: int, batch: int, width: int) -> int:
    """Return what a chain's forward pass leaves on the GPU: the loss, and saved tensors.

    The chain is (Linear(width, width, bias=False), ReLU) x layers in float32; the loss is the mean
    square of its output, and its input needs no gradient. ReLU saves its output, the next Linear
    (or the loss) the same tensor again; each Linear but the first saves its weight.
    """
    rows_bytes = block_bytes(tensor_bytes((batch, width)))
    return block_bytes(4) + (layers * rows_bytes if saving == "on the GPU" else 0)


def backward_peak_bytes(saving: Saving, layers: int, batch: int, width: int) -> int:
    """Return the peak of that chain's backward pass, above parameters and input.

    Its worst moment is the loss's: the gradient of the mean, the power's two factors and their
    product are there, each as large as the output, beside what forward has kept; and the output
    itself, which has to be back. The weights' gradients, which come later, must be less than an
    activation in all.

    Raises:
        ValueError: the weights' gradients could decide the peak.
    """
    rows_bytes, weight_bytes = tensor_bytes((batch, width)), tensor_bytes((width, width))
    if layers * weight_bytes > rows_bytes:
        raise ValueError(
            f"{layers} weights of {weight_bytes} B are more than an activation of {rows_bytes} B: "
            "take a larger batch"
        )
    kept_bytes = kept_after_forward_bytes(saving, layers, batch, width)
    back_bytes = 0 if saving == "on the GPU" else rows_bytes
    return kept_bytes + back_bytes + 4 * rows_bytes + block_bytes(4)


def pinned_bytes(size_bytes: int) -> int:
    """Return the host memory of a pinned tensor, the next power of two.

    Source: `process_events` and `allocate` in aten/src/ATen/core/CachingHostAllocator.h, PyTorch
    2.13 (`PowerOf2Ceil`).
    """
    return 1 << (size_bytes - 1).bit_length() if size_bytes else 0


def tokens_to_hide(
    gpu: GPUModel, arithmetic: Arithmetic, moved_per_parameter_bytes: float
) -> float:
    """Return how many tokens per step hide a transfer of this many bytes per parameter.

    FLOPs grow with parameters x tokens, bytes with parameters: the model's size cancels out.
    Source: the arithmetic intensity of parameters and gradients is length x batch in ZeRO-Infinity,
    arXiv 2104.07857, section 4.

    Args:
        gpu: with its link and its peak.
        arithmetic: in which the products are computed.
        moved_per_parameter_bytes: in one direction; the link carries both at once.
    """
    seconds_per_parameter = moved_per_parameter_bytes / gpu.pcie_bandwidth_bytes_per_s
    per_token = FLOPS_PER_PARAMETER_AND_TOKEN / peak_flops_per_s(gpu, arithmetic)
    return seconds_per_parameter / per_token


def width_to_hide(gpu: GPUModel, arithmetic: Arithmetic, element_bytes: int) -> float:
    """Return the smallest width at which a Linear layer's compute hides its input's transfer.

    A row of the input has `width` elements, and costs 2 x width x width FLOPs: the batch cancels
    out. Backward has twice the FLOPs for the same bytes.
    """
    return element_bytes * peak_flops_per_s(gpu, arithmetic) / (2 * gpu.pcie_bandwidth_bytes_per_s)
