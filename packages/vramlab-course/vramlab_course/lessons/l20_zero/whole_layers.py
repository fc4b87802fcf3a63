"""Names for FSDP2's temporaries: whole parameters and gradients, while a layer works."""

from __future__ import annotations

from vramlab.measure import Timeline

ROLES = {
    "foreach_all_gather": "gathered: output of an all-gather",
    "foreach_all_gather_copy_out": "gathered: copied out of it",
    "foreach_reduce": "gradient in a reduce-scatter",
    "_engine_run_backward": "gradient just computed",
}
"""By the function of PyTorch 2.13 that allocates the block (torch/distributed/fsdp/_fully_shard and
torch/autograd/graph.py)."""


def whole_layers(timeline: Timeline, layer_bytes: int) -> dict[int, str]:
    """Name the blocks that have the size of a whole layer, by their place in `timeline.blocks`.

    Args:
        timeline: of steps under FSDP2.
        layer_bytes: of a layer's parameters.
    """
    names = {}
    for number, block in enumerate(timeline.blocks):
        if block.size_bytes == layer_bytes:
            took = next((frame.function for frame in block.frames if frame.function in ROLES), None)
            if took is not None:
                names[number] = ROLES[took]
    return names
