"""ZeRO: what a rank stores, its temporary memory, and what it sends.

Twice: as the ZeRO paper counts (arXiv 1910.02054), and as PyTorch 2.13 does it, to the byte:

    stage 0   DistributedDataParallel, gradients as views of its buckets
    stage 1   the same, with ZeroRedundancyOptimizer: each rank has the states of some parameters
    stage 2   FSDP2, fully_shard(..., reshard_after_forward=False)
    stage 3   FSDP2, fully_shard(..., reshard_after_forward=True)

A model is given as groups of parameter shapes: the parameters of each module that `fully_shard` was
called with. The optimizer is Adam.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from vramlab.cuda_rules.collectives import ring_sent_bytes
from vramlab.cuda_rules.rounding import ceil_div
from vramlab.cuda_rules.sizes import ITEM_BYTES, MIN_BLOCK_BYTES, block_bytes
from vramlab.programs.divisions import ZERO_STAGES, ZeROStage
from vramlab_course.lessons.l19_dp_and_ddp.formulas import buckets

Stage = ZeROStage
STAGES = ZERO_STAGES

Shape = Sequence[int]
Groups = Sequence[Sequence[Shape]]

PARAMETERS, GRADIENTS, STATES = "parameters", "gradients", "optimizer states"
"""What is kept, by the names that pictures use."""

GATHERED = "gathered parameters"
"""Whole ones, which FSDP2 has put together from the shards."""

A100_THREADS = 108 * 2048
"""That an A100 runs at once."""

PAPER_BYTES_PER_PARAMETER = {PARAMETERS: 2, GRADIENTS: 2, STATES: 12}
"""Mixed precision with Adam. States: a float32 copy, momentum, variance.
Source: the paper's §3.1."""

PAPER_TABLE_GB: dict[Stage, str] = {0: "120", 1: "31.4", 2: "16.6", 3: "1.9"}
"""7.5 billion parameters on 64 GPUs, in GB, with the digits printed in the paper's figure 1."""

DIVIDED: dict[Stage, tuple[str, ...]] = {
    0: (),
    1: (STATES,),
    2: (STATES, GRADIENTS),
    3: (STATES, GRADIENTS, PARAMETERS),
}
"""What each stage divides among the ranks."""


# ---- As the paper counts ----


def paper_bytes(parameters: int, ranks: int, stage: Stage) -> dict[str, int]:
    """Return what each rank stores by the paper's count, rounded up to whole bytes."""
    return {
        name: ceil_div(each * parameters, ranks if name in DIVIDED[stage] else 1)
        for name, each in PAPER_BYTES_PER_PARAMETER.items()
    }


def paper_moved(stage: Stage) -> int:
    """Return what a rank sends by the paper's count, as a multiple of the parameters' bytes.

    An all-reduce counts 2, an all-gather or a reduce-scatter 1. Source: the paper's §7.
    """
    return 3 if stage == 3 else 2


# ---- As PyTorch divides ----


def shard_rows(rows: int, ranks: int, rank: int) -> int:
    """Return the rows of a rank's shard under FSDP2 (torch.chunk: the last may get fewer).

    Source: `_chunk_with_empty` in torch/distributed/fsdp/_fully_shard/_fsdp_common.py.
    """
    each = padded_rows(rows, ranks)
    return max(min(rows - rank * each, each), 0)


def padded_rows(rows: int, ranks: int) -> int:
    """Return the rows that each rank allocates: as many as the first rank has.

    All shards have to be of one size for an all-gather. Source: `_init_sharded_param` in
    torch/distributed/fsdp/_fully_shard/_fsdp_param.py.
    """
    return ceil_div(rows, ranks)


def greedy_partition(numels: Iterable[int], ranks: int) -> list[list[int]]:
    """Return which parameters each rank of a ZeroRedundancyOptimizer updates, by their numels.

    Whole parameters, the largest first, each to the rank that has the least so far. Source:
    `_partition_parameters` in torch/distributed/optim/zero_redundancy_optimizer.py.
    """
    parts: list[list[int]] = [[] for _ in range(ranks)]
    sums = [0] * ranks
    for numel in sorted(numels, reverse=True):
        least = sums.index(min(sums))
        parts[least].append(numel)
        sums[least] += numel
    return parts


def kept_bytes(
    stage: Stage, groups: Groups, ranks: int, rank: int = 0, dtype: str = "float32"
) -> dict[str, int]:
    """Return what a rank stores between the backward pass and `step()`, in blocks, with PyTorch.

    Args:
        stage: see the module.
        groups: shapes of the parameters of each module given to `fully_shard`.
        ranks: how many there are.
        rank: which one.
        dtype: of the parameters as they are kept. FSDP2's MixedPrecisionPolicy does not change it.
    """
    item_bytes = ITEM_BYTES[dtype]
    shapes = [shape for group in groups for shape in group]
    if stage < 2:
        numels = [math.prod(shape) for shape in shapes]
        own = numels if stage == 0 else greedy_partition(numels, ranks)[rank]
        return {
            PARAMETERS: sum(block_bytes(item_bytes * numel) for numel in numels),
            GRADIENTS: _bucket_bytes(item_bytes, numels),
            STATES: 2 * sum(block_bytes(item_bytes * numel) for numel in own),
        }
    padded = [[_numel(shape, padded_rows(shape[0], ranks)) for shape in group] for group in groups]
    own = [_numel(shape, shard_rows(shape[0], ranks, rank)) for shape in shapes]
    return {
        PARAMETERS: sum(block_bytes(item_bytes * numel) for group in padded for numel in group),
        # One tensor for each group: what its reduce-scatter has put out.
        GRADIENTS: sum(block_bytes(item_bytes * sum(group)) for group in padded),
        STATES: 2 * sum(block_bytes(item_bytes * numel) for numel in own),
    }


def gathered_bytes(groups: Groups, ranks: int, dtype: str = "float32") -> int:
    """Return the unsharded parameters of these groups after FSDP2's all-gather.

    With the rows that pad the shards. `dtype` is that of the MixedPrecisionPolicy, if there is one.
    """
    return sum(
        block_bytes(ITEM_BYTES[dtype] * ranks * _numel(shape, padded_rows(shape[0], ranks)))
        for group in groups
        for shape in group
    )


def _unpacking_bytes(shard_bytes: int, ranks: int, threads: int) -> int:
    """Return what copying a layer out of an all-gather takes: an int64 for each block, and five.

    A block of 128 threads copies 2 KiB at a time. Where there are more such tiles than twice the
    blocks that the GPU runs at once, a block does several: of some ranks, and of each some tiles.

    Source: aten/src/ATen/native/cuda/TensorShape.cu, PyTorch 2.13.
    """
    tiles = ceil_div(shard_bytes, 2048)
    tiles_of_block = ceil_div(tiles * ranks, 2 * threads // 128)
    ranks_of_block = min(math.ceil(math.sqrt(tiles_of_block)), ranks)
    blocks = ceil_div(tiles, ceil_div(tiles_of_block, ranks_of_block))
    return block_bytes(8 * (5 + blocks))


def chain_peak_bytes(
    stage: Literal[2, 3],
    layers: int,
    width: int,
    ranks: int,
    rows: int = 1,
    *,
    torch_version: tuple[int, int] = (2, 13),
    threads: int = A100_THREADS,
) -> int:
    """Return the peak of forward and backward of a chain whose layers FSDP2 shards one by one.

    Layers are of (width, width) in float32, without biases; the loss is the sum of what comes out.
    There are no gradients and no optimizer states before; cuBLAS's workspaces are left out. Beside
    shards and activations there are at the peak

    - stage 2, when the last layer is gathered in forward: all parameters, and what the all-gathers
      of the last two layers have put out, from which parameters are copied; and the numbers that
      this copy works from;
    - stage 3, in backward: the gradient of the second layer, the input of the third one's
      reduce-scatter, and of the first layer what the all-gather has put out, and its parameters;
      also the shards of the gradients from the third layer on.

    In PyTorch 2.12 a loop's variable in FSDPParamGroup.post_backward (_fsdp_param_group.py) still
    holds the input of the third layer's reduce-scatter while the second layer's puts out its shard.
    Up to PyTorch 2.14 a variable in FSDPParamGroup.wait_for_unshard holds what the all-gather of
    the layer before has put out. From 2.15 on it does not, and the peak of stage 2 can be in the
    backward pass of the last layer but one: the last layer's parameters are freed, and there are
    the input and output of its reduce-scatter, and a gradient.

    Holds for four layers and more. Source: foreach_all_gather, foreach_reduce and their callers in
    torch/distributed/fsdp/_fully_shard, PyTorch 2.13.

    Args:
        stage: see the module.
        layers: how many.
        width: of each.
        ranks: how many there are.
        rows: of the batch.
        torch_version: of the PyTorch that is installed, whose FSDP2 runs.
        threads: that the GPU runs at once.
    """
    shard_bytes = block_bytes(4 * width * padded_rows(width, ranks))
    layer_bytes = gathered_bytes([[(width, width)]], ranks)
    rows_bytes = block_bytes(4 * rows * width)
    if stage == 2:
        copy_bytes = _unpacking_bytes(4 * width * padded_rows(width, ranks), ranks, threads)
        all_bytes = layers * (shard_bytes + rows_bytes + layer_bytes)
        if torch_version < (2, 15):
            return all_bytes + 2 * layer_bytes + copy_bytes
        backward_bytes = (
            shard_bytes
            + block_bytes(4 * width * width)  # a gradient has no rows that pad it
            + rows_bytes
            + 2 * MIN_BLOCK_BYTES  # the loss and its gradient
        )
        # Of forward: the copy of the last layer, or what it puts out.
        return all_bytes + max(layer_bytes + max(copy_bytes, rows_bytes), backward_bytes)
    more_bytes = 0
    if torch_version == (2, 12):
        # The shard; by then the gradients at both ends of the second layer are gone.
        more_bytes = max(0, shard_bytes - 2 * rows_bytes)
    return (
        (2 * layers - 2) * shard_bytes
        + 3 * layer_bytes
        + block_bytes(4 * width * width)  # a gradient has no rows that pad it
        + 4 * rows_bytes  # what the first two layers have got; gradients at both ends of the second
        + 2 * MIN_BLOCK_BYTES  # the loss and its gradient
        + more_bytes
    )


def held_bytes(
    stage: Stage, groups: Groups, ranks: int, rank: int = 0, *, mixed: bool = False
) -> dict[str, int]:
    """Return a rank's memory after the forward pass, with old gradients and states.

    Leaves out activations.

    Args:
        stage: see the module.
        groups: shapes of the parameters of each module given to `fully_shard`.
        ranks: how many there are.
        rank: which one.
        mixed: in mixed precision. Stages 0 and 1: 16-bit parameters and gradients, and an optimizer
            with float32 copies, which are listed with the states. Stages 2 and 3: FSDP2 with
            MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16), which keeps float32 shards of all.
    """
    if mixed and stage < 2:
        numels = [math.prod(shape) for group in groups for shape in group]
        own = numels if stage == 0 else greedy_partition(numels, ranks)[rank]
        return {
            PARAMETERS: sum(block_bytes(2 * numel) for numel in numels),
            GRADIENTS: _bucket_bytes(2, numels),
            STATES: 3 * sum(block_bytes(4 * numel) for numel in own),
        }
    kept = kept_bytes(stage, groups, ranks, rank)
    if stage == 2:
        kept[GATHERED] = gathered_bytes(groups, ranks, "bfloat16" if mixed else "float32")
    return kept


def chain_activations_bytes(layers: int, width: int, rows: int = 1, dtype: str = "float16") -> int:
    """Return what the forward pass of a chain saves: each layer's input, and the loss."""
    return layers * block_bytes(ITEM_BYTES[dtype] * rows * width) + MIN_BLOCK_BYTES


# ---- What PyTorch sends ----


def sent_bytes(
    stage: Stage, groups: Groups, ranks: int, dtype: str = "float32", reduced: str | None = None
) -> int:
    """Return what a rank sends around a ring (`vramlab.cuda_rules.collectives`) in a step.

    Stage 0 reduces all gradients. Stage 1 does the same, then each rank sends all others what it
    has updated: more than the paper counts, which reduces each gradient to one rank only. Stages 2
    and 3 gather parameters once and twice, and reduce-scatter gradients.

    Args:
        stage: see the module.
        groups: shapes of the parameters of each module given to `fully_shard`.
        ranks: how many there are.
        dtype: in which parameters travel.
        reduced: in which gradients travel; None: in `dtype`.
    """
    shapes = [shape for group in groups for shape in group]
    if stage < 2:
        whole_bytes = ITEM_BYTES[dtype] * sum(map(math.prod, shapes))
        reduce_bytes = ring_sent_bytes("all-reduce", whole_bytes, ranks)
        return reduce_bytes + (ring_sent_bytes("broadcast", whole_bytes, ranks) if stage else 0)
    numel = sum(ranks * _numel(shape, padded_rows(shape[0], ranks)) for shape in shapes)
    gathers = 1 if stage == 2 else 2
    gathered, scattered = ITEM_BYTES[dtype] * numel, ITEM_BYTES[reduced or dtype] * numel
    return gathers * ring_sent_bytes("all-gather", gathered, ranks) + ring_sent_bytes(
        "reduce-scatter", scattered, ranks
    )


def _bucket_bytes(item_bytes: int, numels: Sequence[int]) -> int:
    """Gradients as they lie in DDP's buckets from its second step on, the last layer's first."""
    sizes_bytes = [item_bytes * numel for numel in reversed(numels)]
    return sum(
        block_bytes(sum(sizes_bytes[number] for number in bucket))
        for bucket in buckets(sizes_bytes)
    )


def _numel(shape: Shape, rows: int) -> int:
    """Elements of a tensor of this shape with another number of rows."""
    return rows * math.prod(shape[1:])
