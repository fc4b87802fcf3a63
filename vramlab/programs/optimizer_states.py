"""Optimizer states, and the temporary memory of `step()`.

Source: `_single_tensor_*`, `_multi_tensor_*` and `_fused_*` in torch/optim/sgd.py and adam.py,
PyTorch 2.13. Sizes are those of the blocks that tensors take, all parameters on one GPU, of one
dtype; options such as amsgrad, maximize and capturable are off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vramlab.cuda_rules.sizes import block_bytes

Implementation = Literal["loop", "foreach", "fused"]
"""How step() works: one parameter after the other, all at once op by op, or one kernel for all."""

STATES = {"sgd": 0, "sgd with momentum": 1, "adam": 2, "adamw": 2}
"""Tensors of a parameter's own size that an optimizer keeps for each parameter.

The step count is one more, a single number that stays on the CPU, except with fused=True: there it
is on the GPU, 512 B for each parameter."""


def state_bytes(
    optimizer: str, parameters_bytes: Sequence[int], implementation: Implementation = "loop"
) -> int:
    """Return the bytes of the optimizer states after the first step().

    Document 001 §2.25 says that SGD needs as much as the weights; that is SGD with momentum. Plain
    SGD keeps nothing.

    Args:
        optimizer: a name in `STATES`.
        parameters_bytes: size of each parameter.
        implementation: of step().
    """
    kept_bytes = STATES[optimizer] * sum(map(block_bytes, parameters_bytes))
    if implementation == "fused" and optimizer.startswith("adam"):
        kept_bytes += block_bytes(4) * len(parameters_bytes)
    return kept_bytes


def adam_step_extra_bytes(parameters_bytes: Sequence[int], implementation: Implementation) -> int:
    """Return the temporary memory of Adam's step(), besides states, parameters and gradients.

    All of it is for the denominator, sqrt(v) / correction + eps:

        loop     the square root and its quotient, both of the parameter's size; the quotient of
                 the parameter before still has its name, and so its memory, until the next one
                 takes it. For a single parameter that is document 003's "twice the parameters of
                 the layer".
        foreach  the square roots of all parameters at once; the rest happens in place.
        fused    nothing: the kernel keeps it in registers.
    """
    sizes = [block_bytes(size_bytes) for size_bytes in parameters_bytes]
    if implementation == "loop":
        before = [0, *sizes[:-1]]
        return max(kept + 2 * size for kept, size in zip(before, sizes, strict=True))
    return sum(sizes) if implementation == "foreach" else 0
