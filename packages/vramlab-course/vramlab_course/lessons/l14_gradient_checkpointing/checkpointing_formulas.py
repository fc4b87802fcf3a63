"""Activation checkpointing: the memory of a chain of equal steps with a schedule.

Source: the schedules themselves (`checkpointing` beside this file), and what a step keeps for its
backward pass (tools/autograd/derivatives.yaml, PyTorch 2.13): a matrix product its input, GELU its
input. A product's two gradients are computed one after the other, and live until the backward pass
of the step ends. Sizes do not include what is allocated before the step: parameters, the input and
workspaces. Letters: n steps, k segments of m steps, a bytes of one state.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab_course.formulas.training import SCALAR_BYTES
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing.schedule import (
    Do,
    Schedule,
    ScheduleMoment,
    simulate,
)


@dataclass(frozen=True)
class ChainSizes:
    """What one step of a chain takes; all steps are alike. States keep their size."""

    state_bytes: int
    """One state, and the gradient of one."""
    inner_bytes: int
    """What a recorded step holds besides the state that it began with."""
    advancing_bytes: int
    """What a step takes while it advances, its result included."""
    reversing_bytes: int
    """What going back through it takes, beyond its recording and the gradient it begins with."""
    reversing_first_bytes: int
    """The same for the first step, whose input needs no gradient."""
    parameters_bytes: int
    """Its parameters, and so their gradients, which stay."""


def linear_sizes(batch: int, width: int) -> ChainSizes:
    """Return the sizes of steps nn.Linear(width, width, bias=False) on (batch, width), float32."""
    state = block_bytes(tensor_bytes((batch, width)))
    weight = block_bytes(tensor_bytes((width, width)))
    return ChainSizes(
        state_bytes=state,
        inner_bytes=0,
        advancing_bytes=state,
        reversing_bytes=state + weight,
        reversing_first_bytes=weight,
        parameters_bytes=weight,
    )


def mlp_sizes(batch: int, width: int) -> ChainSizes:
    """Return the sizes of the steps of an MLP without biases: Linear, GELU, Linear.

    The Linear layers are (width, 4 width) and (4 width, width).
    """
    state = block_bytes(tensor_bytes((batch, width)))
    inner = block_bytes(tensor_bytes((batch, 4 * width)))
    weight = block_bytes(tensor_bytes((4 * width, width)))
    # Back through the second product: gradients of GELU's output and of the weight. Then GELU's
    # output goes, and the gradient of its input comes.
    return ChainSizes(
        state_bytes=state,
        inner_bytes=2 * inner,  # before and after GELU
        advancing_bytes=2 * inner,  # what was before GELU goes before the result comes
        reversing_bytes=inner + weight,
        reversing_first_bytes=inner + weight,
        parameters_bytes=2 * weight,
    )


def peak_bytes(schedule: Schedule, sizes: ChainSizes) -> int:
    """Return the peak of a step with any schedule and a loss that saves nothing, such as a sum."""
    return max(while_acting for _, while_acting in moments_bytes(schedule, sizes))


def moments_bytes(schedule: Schedule, sizes: ChainSizes) -> list[tuple[int, int]]:
    """Return, for each action, allocated memory after it, and the peak during it."""
    moments = []
    gone_back = 0
    for before, after in simulate(schedule).pairs():
        assert after.action is not None
        held_before = _held_bytes(before, sizes, gone_back)
        if after.action.do is Do.BACKWARD:
            gone_back += 1
        held_after = _held_bytes(after, sizes, gone_back)
        match after.action.do:
            case Do.ADVANCE:
                most = held_before + sizes.advancing_bytes
            case Do.RECORD:
                most = held_before + sizes.inner_bytes + sizes.state_bytes
            case Do.BACKWARD:
                first = after.action.index == 0
                # The current state goes first; before the very first one comes the gradient of
                # the last state.
                begin = sizes.state_bytes * len((before.stored | before.recorded) - {0})
                begin += sizes.inner_bytes * len(before.recorded) + sizes.state_bytes
                begin += sizes.parameters_bytes * (gone_back - 1) + SCALAR_BYTES
                begin += sizes.reversing_first_bytes if first else sizes.reversing_bytes
                most = max(held_before, begin)
            case _:
                most = max(held_before, held_after)
        moments.append((held_after, most))
    return moments


def _held_bytes(moment: ScheduleMoment, sizes: ChainSizes, gone_back: int) -> int:
    """States but the input, recordings, the current gradient, the loss, gradients of parameters."""
    states = sizes.state_bytes * len(moment.states - {0})
    recordings = sizes.inner_bytes * len(moment.recorded)
    gradient = sizes.state_bytes if moment.gradient else 0
    loss = 0 if moment.gradient is None else SCALAR_BYTES
    return states + recordings + gradient + loss + sizes.parameters_bytes * gone_back


def selective_bytes(steps: int, sizes: ChainSizes) -> int:
    """Return the peak of MLP steps that save matrix products and recompute GELUs.

    Of each step the result of both products: one as large as four states, and the next state. The
    last state is kept as well. In the backward pass a step's GELU is there again.
    """
    inner = sizes.inner_bytes // 2  # before GELU, and after it
    kept = steps * (sizes.state_bytes + inner)
    return kept + inner + sizes.state_bytes + sizes.reversing_bytes + 2 * SCALAR_BYTES


# ---- FLOPs ----


@dataclass(frozen=True)
class ChainFlops:
    """FLOPs of the matrix products of one step; a multiplication and an addition are two."""

    forward: int
    """Running it forward once."""
    last_product: int
    """Of these, the product that makes its result."""
    input_gradient: int
    """What the gradient of its input takes; the first step of a chain needs none."""

    def step(self, steps: int, forwards: int) -> int:
        """Return the FLOPs of a training step with `forwards` steps forward.

        A step backward costs twice as much as one forward.
        """
        return forwards * self.forward + steps * 2 * self.forward - self.input_gradient


def mlp_flops(batch: int, width: int) -> ChainFlops:
    """Return the FLOPs of two matrix products of (batch, width) with (width, 4 width)."""
    product = 2 * batch * width * 4 * width
    return ChainFlops(forward=2 * product, last_product=product, input_gradient=product)


def transformer_flops(layers: int, width: int, batch: int, sequence: int) -> tuple[int, int]:
    """Return the FLOPs of the matrix products in the forward pass of a transformer's layers.

    Returns:
        Of all products; and of the last one of each layer, which leads from four times the width
        back.
    """
    rows = batch * sequence
    projections = 2 * rows * width * (4 * width + 2 * 4 * width)
    attention = 2 * (2 * batch * sequence * sequence * width)  # scores, and their use
    last = 2 * rows * 4 * width * width
    return layers * (projections + attention), layers * last


def transformer_kept_bytes(
    layers: int, width: int, batch: int, sequence: int, added_bytes: int
) -> int:
    """Return what the forward pass of BERT or GPT-2 saves with every layer checkpointed.

    The layers' inputs, input and result of one layer norm outside of them (with a mean and a
    deviation per row), and a gathered row of indices.

    Args:
        added_bytes: masks outside of the layers.
    """
    hidden = block_bytes(tensor_bytes((batch, sequence, width)))  # (B, S, W)
    statistics = 2 * block_bytes(tensor_bytes((batch, sequence)))
    indices = block_bytes(tensor_bytes((1, sequence), "int64"))
    return (layers + 2) * hidden + statistics + indices + added_bytes


# ---- Closed forms ----
#
# Each is the peak at the first step that is gone back, which is the highest as long as a state
# outweighs the gradients of the parameters. `peak_bytes` looks at every action.


def segments_bytes(steps: int, count: int, sizes: ChainSizes) -> int:
    """Return the inputs of segments, the last segment recorded, and its backward pass: k + n / k.

    Segments as checkpoint_sequential cuts them: the last one has the rest. One segment is a chain
    of which everything is recorded.
    """
    last = steps - (count - 1) * (steps // count)
    stored = count - 1  # before each segment but the first, which begins with the input
    states = stored + last - 1
    recorded = states * sizes.state_bytes + last * sizes.inner_bytes
    reversing = sizes.reversing_bytes if steps > 1 else sizes.reversing_first_bytes
    return recorded + sizes.state_bytes + reversing + SCALAR_BYTES


def reentrant_segments_bytes(steps: int, count: int, sizes: ChainSizes) -> int:
    """Return the same with use_reentrant=True: a segment's output lives until its backward pass.

    The second to last segment is then higher than the last: a state more, and the gradients of the
    parameters of the last segment.
    """
    last_segment = segments_bytes(steps, count, sizes)
    if count == 1:
        return last_segment
    length = steps // count
    last = steps - (count - 1) * length
    before = count - 2  # segments before the second to last; the first begins with the input
    states = max(before - 1, 0) + length - (0 if before else 1) + 1
    first = states * sizes.state_bytes + length * sizes.inner_bytes
    first += sizes.state_bytes + sizes.reversing_bytes + last * sizes.parameters_bytes
    # The gradient that the segment begins with is held, too.
    second = first - sizes.inner_bytes + sizes.parameters_bytes if length > 1 else 0
    return max(last_segment, first + SCALAR_BYTES, second + SCALAR_BYTES)


def segments_held_bytes(steps: int, count: int, sizes: ChainSizes) -> int:
    """Return allocated memory after the forward pass: (k - 1) states and a segment."""
    last = steps - (count - 1) * (steps // count)
    return (count - 1 + last) * sizes.state_bytes + last * sizes.inner_bytes


def best_count(steps: int, sizes: ChainSizes) -> int:
    """Return the number of segments with the lowest peak, and the smallest of several."""
    return min(range(1, steps + 1), key=lambda count: segments_bytes(steps, count, sizes))


def deepest(limit_bytes: int, kind: str, sizes: ChainSizes) -> int:
    """Return the longest chain for which a training step fits, including gradients.

    Args:
        limit_bytes: what parameters, activations and gradients may take together.
        kind: "store all", "segments" (as many as is best) or "each step" (n segments).
        sizes: of a step.
    """
    steps = 0
    while _with_parameters(steps + 1, kind, sizes) <= limit_bytes:
        steps += 1
    return steps


def _with_parameters(steps: int, kind: str, sizes: ChainSizes) -> int:
    count = {"store all": 1, "each step": steps}.get(kind) or best_count(steps, sizes)
    # At the end all gradients of parameters are there, and of activations hardly any.
    end = steps * sizes.parameters_bytes + sizes.inner_bytes
    return steps * sizes.parameters_bytes + max(segments_bytes(steps, count, sizes), end)
