"""About how much a plan takes, in closed form and at once: to compare plans before one is run.

The sum of what is kept (`vramlab.programs.transformer_memory`, ZeRO's shares) at three moments: the
loss, the backward pass of a layer, the optimizer's step. What ops hold for a moment is counted
roughly. `vramlab.planner.estimate` says what a plan takes exactly, and `least_bytes` what it takes
at least.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

from vramlab.cuda_rules.sizes import ITEM_BYTES, block_bytes, tensor_bytes
from vramlab.planner.plan import Plan
from vramlab.programs import transformer_memory as kept
from vramlab.programs.transformer_memory import Sizes
from vramlab.torch_versions import Version, parse


def about_bytes(plan: Plan, stage: int | None = None) -> int:
    """Estimate the peak of a rank roughly, in closed form.

    Args:
        plan: of the course's transformer.
        stage: of the pipeline; the first or the last one, which holds more, if None.
    """
    if stage is None:
        return max(about_bytes(plan, stage) for stage in {0, plan.pipeline - 1})
    sizes, run = plan.part(stage), plan.run
    lasting, gradients, extra = _lasting(plan, sizes)
    at_loss, in_layer = _gathered(plan, sizes) if plan.zero >= 2 else (0, 0)
    kept_bytes, in_head = kept.kept_bytes(sizes, run), sum(kept.head_kept(sizes, run).values())
    in_layers = kept_bytes - in_head
    again = sum(kept.layer_terms(sizes, run).values())  # while its backward pass is under way
    passing = 2 * run.rows_bytes(sizes.inner, run.dtypes.compute)
    if plan.activations_on_host:
        in_layers, kept_bytes = again, in_head + again
    waiting = (plan.in_flight(stage) - 1) * in_layers + _buffers(plan, stage)
    stay = plan.micro_batches > 1 or (plan.data > 1 and plan.zero < 2)
    waiting += gradients if stay else 0
    return lasting + max(
        at_loss + waiting + kept_bytes + _loss(plan, sizes),
        in_layer + waiting + in_layers + again + passing,
        in_layer + gradients + again + passing,
        gradients + extra,
        2 * gradients if plan.data > 1 and plan.zero < 2 else 0,  # DDP makes new buckets
    )


def least_bytes(plan: Plan, stage: int | None = None) -> int:
    """Return a lower bound of the peak of a rank, in closed form.

    Parameters and optimizer states are on the GPU together with everything that is saved for
    backward when the loss is known, and together with all gradients at the end of backward.
    Temporaries and workspaces are left out, and so are layers whose tensors may not be saved.

    Args:
        plan: of the built-in transformer.
        stage: of the pipeline; the larger bound of the first and the last one if None.
    """
    if stage is None:
        return max(least_bytes(plan, stage) for stage in {0, plan.pipeline - 1})
    sizes, run = plan.part(stage), plan.run
    lasting, gradients, _ = _lasting(plan, sizes)
    gathered = _gathered(plan, sizes)[0] if plan.zero >= 2 else 0
    in_head = sum(kept.head_kept(sizes, run).values())
    in_layers = kept.kept_bytes(sizes, run) - in_head
    if plan.activations_on_host:
        in_layers = in_head = 0
    if plan.adapter_rank:  # before the first adapter and behind the last one nothing is saved
        in_layers, in_head = in_layers * (sizes.layers - 1) // sizes.layers, 0
    if plan.pipeline > 1 and not sizes.predicts:
        in_head = 0
    return lasting + max(gathered + in_layers + in_head, gradients)


def trained_numbers(plan: Plan, sizes: Sizes) -> int:
    """Return how many numbers are trained of a part of the model: all, or those of adapters."""
    if not plan.adapter_rank:
        return sizes.parameters()
    of_layer = sum(rows + columns for rows, columns in sizes.matrices)
    return sizes.layers * plan.adapter_rank * of_layer


def _lasting(plan: Plan, sizes: Sizes) -> tuple[int, int, int]:
    """Return what is there from step to step; gradients; what the optimizer takes for a while."""
    run, dtypes = plan.run, plan.run.dtypes
    weights = kept.parameters_bytes(sizes, dtypes.weights)
    states, extra = kept.states_bytes(sizes, run), kept.step_extra_bytes(sizes, run)
    gradients = weights
    if plan.adapter_rank:
        trained = trained_numbers(plan, sizes)
        gradients = trained * ITEM_BYTES[dtypes.weights]
        states = states * trained // sizes.parameters()
        extra = extra * trained // sizes.parameters()
        weights += gradients
    if plan.zero == 1:
        states, extra = states // plan.data, extra // plan.data
    if plan.zero >= 2:
        shards = kept.parameters_bytes(sizes, dtypes.state_dtype) // plan.data
        of_trained = shards * trained_numbers(plan, sizes) // sizes.parameters()
        # With float32 copies the shards are these.
        states = states // plan.data - (of_trained if dtypes.master else 0)
        gradients, extra = of_trained, extra // plan.data
        if plan.optimizer_on_host:
            shards = states = gradients = extra = 0
        return shards + states, gradients, extra
    if plan.optimizer_on_host:
        states = extra = 0
        gradients = gradients if plan.data > 1 else 0
    return weights + states, gradients, extra


def _gathered(plan: Plan, sizes: Sizes) -> tuple[int, int]:
    """Return what FSDP2 has gathered at the loss and in a layer's backward pass.

    What belongs to no layer, and all layers; or one, and where gradients are scattered, three.
    """
    dtype = plan.run.dtypes.weights
    layer = sum(block_bytes(tensor_bytes(s, dtype)) for s in sizes.layer_shapes())
    root = kept.parameters_bytes(sizes, dtype) - sizes.layers * layer
    at_loss, in_layer = (sizes.layers, sizes.layers) if plan.zero == 2 else (1, 3)
    return root + at_loss * layer, root + min(in_layer, sizes.layers) * layer


def _loss(plan: Plan, sizes: Sizes) -> int:
    """Return the loss's temporaries: gradients of logits, in float32 if ranks share them."""
    if not sizes.predicts:
        return 0
    run = plan.run
    logits = run.rows_bytes(sizes.vocabulary, run.dtypes.compute) // run.loss_chunks
    wide = run.rows_bytes(sizes.vocabulary, "float32") // run.loss_chunks
    if run.loss_chunks > 1:  # logarithms of one chunk are there, too
        return 2 * logits + 2 * wide if run.dtypes.autocast else 3 * logits
    if plan.tensor > 1:
        return logits + 3 * wide
    return max(logits + wide if run.dtypes.autocast else 0, 2 * logits)


_RECEIVES_AS_NEEDED = (2, 15)
"""The first PyTorch whose pipelines have no receive buffers beforehand."""


def _buffers(plan: Plan, stage: int) -> int:
    """Return what a stage receives into: inputs in flight and the next one, and one gradient.

    Losses keep all inputs of the last stage. Up to PyTorch 2.14, every stage has an input and a
    gradient for each micro-batch.
    """
    inputs = gradients = plan.micro_batches
    is_last = stage == plan.pipeline - 1
    if (installed_version() or _RECEIVES_AS_NEEDED) >= _RECEIVES_AS_NEEDED:
        gradients = 1
        inputs = inputs if is_last else min(plan.in_flight(stage) + 1, inputs)
    received = inputs * (stage > 0) + gradients * (not is_last)
    run = plan.run
    return received * run.between_bytes(plan.transformer.width, run.dtypes.stream)


@cache
def installed_version() -> Version | None:
    """Return (major, minor) of the PyTorch that runs the pipeline, without importing it."""
    return parse(version("torch"))
