"""Models built on the host for their memory alone: their weights are not initialized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

_FILLS = frozenset(
    {
        *("uniform_", "normal_", "erfinv_"),  # of tensors; trunc_normal_ is made of the last
        *("kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_"),
        "trunc_normal_",
    }
)
"""Functions of torch.Tensor and torch.nn.init that fill their tensor with random numbers."""


class UnfilledWeights(TorchFunctionMode):
    """Let weights that the body makes on the host have whatever numbers their memory has.

    Layers are the same in shape, order and ties, and so is what they take when they are moved to a
    GPU; buffers and what is set to a constant keep their numbers. On a GPU everything is filled,
    since that may take memory. For models whose outputs are not read::

        with UnfilledWeights():
            model = BertModel(config)
        model.to("cuda")
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Leave out what would fill a tensor on the host; call everything else."""
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in _FILLS:
            tensor = args[0] if args else kwargs["tensor"]
            if tensor.device.type == "cpu":
                return tensor
        return func(*args, **kwargs)
