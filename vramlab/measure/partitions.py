"""What torch.compile keeps for backward: decided by AOTAutograd's partitioner, before any kernel.

`torch.compile` traces forward and backward together, and a partitioner cuts the graph in two. What
crosses the cut is kept; what is left of it is recomputed in backward. The default partitioner of
AOTAutograd cuts where eager PyTorch does; the one that torch.compile uses looks for the smallest
cut. That needs no GPU: functions are traced here with host tensors, and run as they are.

Source: torch/_functorch/partitioners.py, PyTorch 2.13.
Known limitations: which kernels Inductor then writes, and what they take, is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from vramlab.gpu.torch_internals import storage_id

Partition = Literal["eager", "default", "min-cut"]


def kept_for_backward(
    function: Callable[..., Tensor], *inputs: Tensor, partition: Partition = "eager"
) -> int:
    """Measure what a function keeps for backward, each storage once, its inputs left out.

    Args:
        function: from tensors to one tensor.
        inputs: on the host; at least one needs a gradient.
        partition: eager PyTorch, or traced and cut by one of the partitioners.

    Raises:
        ValueError: an input is not on the host.
    """
    if any(tensor.device.type != "cpu" for tensor in inputs):
        raise ValueError("kept_for_backward traces on the host: give it tensors on the CPU")
    run = function if partition == "eager" else _partitioned(function, partition)
    owned = {storage_id(tensor.untyped_storage()) for tensor in inputs}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage_id(storage) not in owned:
            kept[storage_id(storage)] = storage.nbytes()
        return tensor.detach()

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run(*inputs)
    assert result.grad_fn is not None
    return sum(kept.values())


def _partitioned(function: Callable[..., Tensor], partition: Partition) -> Callable[..., Tensor]:
    from functorch import compile as functorch

    cuts: dict[Partition, Any] = {
        "default": functorch.default_partition,
        "min-cut": functorch.min_cut_rematerialization_partition,
    }

    def as_it_is(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        return functorch.make_boxed_func(gm.forward)

    traced: Callable[..., Tensor] = functorch.aot_function(
        function, as_it_is, partition_fn=cuts[partition]
    )
    return traced
