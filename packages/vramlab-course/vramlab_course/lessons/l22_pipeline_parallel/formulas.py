"""Pipeline parallelism: memory and traffic of a stage, and micro-batches in flight.

A stage is a chain of Linear layers without bias, as torch.distributed.pipelining runs it; the loss
is the sum of the last stage's output. Beside what any training step holds, PyTorch's implementation
holds

- a buffer for the input of every micro-batch of a step, and one for the gradient of its output,
  from the first step on, whatever the schedule: `_setup_forward_recv_info` and
  `_create_grad_recv_info` in stage.py;
- under 1F1B the gradient that was sent last, until the next one is sent: `bwd_sends` in
  `Schedule1F1B._step_microbatches`, schedules.py;
- in the last stage every output, and at the end all of them again, merged, unless it is called
  with `return_outputs=False`: `_merge_outputs`, schedules.py.

From PyTorch 2.15 on a buffer is allocated when it is received into, and freed with its micro-batch;
the losses keep those of the last stage until the step has ended. A stage releases outputs that were
sent: under GPipe after all forward passes, under 1F1B after the next one, or before the next
backward pass (`_wait_and_release_fwd_send`, schedules.py).

Source: torch/distributed/pipelining, PyTorch 2.13 and 2.15; backward as in
`vramlab_course.formulas.training`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.programs.pipeline_schedules import Name, PipelineSchedule, plan
from vramlab_course.formulas.training import SCALAR_BYTES

Parts = dict[str, int]
"""Bytes by what they are."""

PARAMETERS = "parameters"
GRADIENTS = "gradients"
INPUT = "input"
BUFFERS = "buffers to receive into"
IN_FLIGHT = "other micro-batches in flight"
CURRENT = "this micro-batch, and its gradients"
SENT = "gradient that was sent last"
OUTPUTS = "outputs and losses that are kept"


@dataclass(frozen=True)
class Pipeline:
    """A chain of Linear layers that is cut into stages, one for each rank."""

    schedule: Name
    """GPipe or 1F1B."""
    rows: int
    """Of a micro-batch."""
    micro_batches: int
    """Of a step."""
    stages: tuple[tuple[int, ...], ...]
    """Widths of each stage: of its input and of each layer's output."""
    is_checkpointed: bool = False
    """Each stage keeps its input only, and computes the rest again in backward."""
    returns_outputs: bool = False
    """The last stage keeps all outputs, and merges them."""
    torch_version: tuple[int, int] = (2, 13)
    """Of the PyTorch that is installed, whose pipelining runs."""

    @property
    def releases(self) -> bool:
        """Return whether stages release what was sent, and have no buffers beforehand."""
        return self.torch_version >= (2, 15)

    @property
    def ranks(self) -> int:
        """Return the number of ranks, one for each stage."""
        return len(self.stages)

    def stage(self, rank: int) -> PipelineStage:
        """Return the stage of a rank."""
        return PipelineStage(self, rank)


@dataclass(frozen=True)
class PipelineStage:
    """What one rank holds, in bytes; cuBLAS's workspaces and sums' buffers are not included."""

    pipeline: Pipeline
    """The whole."""
    rank: int
    """Which stage: 0 is the first."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the widths of its input and of each layer's output."""
        return self.pipeline.stages[self.rank]

    @property
    def is_first(self) -> bool:
        """Return whether its input is the caller's, which needs no gradient."""
        return self.rank == 0

    @property
    def is_last(self) -> bool:
        """Return whether it computes the loss."""
        return self.rank == self.pipeline.ranks - 1

    def rows_bytes(self, width: int) -> int:
        """Return the bytes of an activation of one micro-batch, or of its gradient."""
        return block_bytes(tensor_bytes((self.pipeline.rows, width)))

    def weight_bytes(self, layer: int) -> int:
        """Return the bytes of the weight of layer 1, 2, ..., or of its gradient."""
        return block_bytes(tensor_bytes((self.widths[layer], self.widths[layer - 1])))

    @property
    def parameters_bytes(self) -> int:
        """Return the bytes of all weights; their gradients are as large."""
        return sum(self.weight_bytes(layer) for layer in range(1, len(self.widths)))

    @property
    def buffers_bytes(self) -> int:
        """Return the receive buffers that stay between steps: up to PyTorch 2.14, all of them."""
        if self.pipeline.releases:
            return 0
        return self._buffers_bytes(self.pipeline.micro_batches, self.pipeline.micro_batches)

    def _buffers_bytes(self, inputs: int, gradients: int) -> int:
        """Receive buffers: so many inputs, and so many gradients of outputs."""
        inputs_bytes = 0 if self.is_first else self.rows_bytes(self.widths[0])
        gradients_bytes = 0 if self.is_last else self.rows_bytes(self.widths[-1])
        return inputs * inputs_bytes + gradients * gradients_bytes

    @property
    def input_bytes(self) -> int:
        """Return the whole batch, if the caller holds it; micro-batches are views of it."""
        if not self.is_first:
            return 0
        return block_bytes(
            tensor_bytes((self.pipeline.micro_batches * self.pipeline.rows, self.widths[0]))
        )

    @property
    def in_flight_bytes(self) -> int:
        """Return what a micro-batch in flight stores besides its input."""
        inner = () if self.pipeline.is_checkpointed else self.widths[1:-1]
        loss_bytes = SCALAR_BYTES if self.is_last else 0
        return sum(map(self.rows_bytes, inner)) + self._unsent_bytes(1) + loss_bytes

    def _unsent_bytes(self, micro_batches: int) -> int:
        """Return outputs that stay until backward: all, or only the last stage's unsent ones."""
        stay = self.is_last or not self.pipeline.releases
        return micro_batches * self.rows_bytes(self.widths[-1]) if stay else 0

    @property
    def held_after_bytes(self) -> int:
        """Return memory after a step whose result is dropped.

        It includes gradients, buffers and the list of outputs.
        """
        outputs_bytes = self._kept_outputs_bytes(self.pipeline.micro_batches)
        return 2 * self.parameters_bytes + self.input_bytes + self.buffers_bytes + outputs_bytes

    @property
    def in_flight(self) -> int:
        """Return the most micro-batches in flight, between their forward and backward pass."""
        return self._plan.in_flight(self.rank)

    @property
    def peak_bytes(self) -> int:
        """Return the peak of a first step, in which gradients are allocated."""
        return sum(self.peak()[1].values())

    def peak(self) -> tuple[str, Parts]:
        """Return the moment with the most memory, and that memory."""
        return max(self.moments(), key=lambda moment: sum(moment[1].values()))

    def moments(self) -> Iterator[tuple[str, Parts]]:
        """Return memory at every moment that can be the peak: in each pass of each micro-batch."""
        flying = backwards = 0
        is_1f1b = self.pipeline.schedule == "1F1B"
        is_after_forward = False
        for work in self._plan.order(self.rank):
            # 1F1B frees the gradient that it has sent after the next backward.
            still_there = backwards and not self.is_first and is_1f1b
            held = {
                PARAMETERS: self.parameters_bytes,
                INPUT: self.input_bytes,
                BUFFERS: self.buffers_bytes,
                GRADIENTS: self.parameters_bytes if backwards else 0,
                SENT: self.rows_bytes(self.widths[0]) if still_there else 0,
                # A loss stays until the step has ended; those in flight are counted there.
                OUTPUTS: self._kept_outputs_bytes(backwards)
                + (backwards * SCALAR_BYTES if self.is_last else 0),
            }
            if self.pipeline.releases:
                received = flying + (work.direction == "forward") + backwards * self.is_last
                held[BUFFERS] = self._buffers_bytes(received, int(work.direction == "backward"))
            if work.direction == "forward":
                own_bytes = self._forward_bytes
                others_bytes = flying * self.in_flight_bytes
                if backwards == 0:
                    others_bytes += self._being_sent_bytes(min(flying, 1) if is_1f1b else flying)
                yield (
                    f"forward {work.micro_batch}",
                    {**held, IN_FLIGHT: others_bytes, CURRENT: own_bytes},
                )
                flying += 1
            else:
                if is_1f1b and is_after_forward:  # an output is sent while a gradient is received
                    sending_bytes = flying * self.in_flight_bytes + self._being_sent_bytes(1)
                    yield (
                        f"receive {work.micro_batch}",
                        {**held, IN_FLIGHT: sending_bytes, CURRENT: 0},
                    )
                others_bytes = (flying - 1) * self.in_flight_bytes
                for layer, own_bytes, new_bytes in self._backward(is_first_one=not backwards):
                    yield (
                        f"backward {work.micro_batch}, layer {layer}",
                        {
                            **held,
                            GRADIENTS: held[GRADIENTS] + new_bytes,
                            IN_FLIGHT: others_bytes,
                            CURRENT: own_bytes,
                        },
                    )
                flying -= 1
                backwards += 1
            is_after_forward = work.direction == "forward"
        yield (
            "merge",
            {
                PARAMETERS: self.parameters_bytes,
                INPUT: self.input_bytes,
                BUFFERS: self.buffers_bytes,
                GRADIENTS: self.parameters_bytes,
                OUTPUTS: self._kept_outputs_bytes(self.pipeline.micro_batches) + self._merged_bytes,
            },
        )

    @property
    def _forward_bytes(self) -> int:
        """The most that forward of one micro-batch takes: all outputs, or two neighbours."""
        rows_bytes = [self.rows_bytes(width) for width in self.widths[1:]]
        if self.pipeline.is_checkpointed and len(rows_bytes) > 1:
            return max(map(sum, pairwise(rows_bytes)))
        return sum(rows_bytes)

    def _backward(self, is_first_one: bool) -> Iterator[tuple[int, int, int]]:
        """Yield what backward of one micro-batch holds in each layer, last layer first.

        Yields the layer, its activations with their gradients, and new gradients of weights.
        """
        last = len(self.widths) - 1
        loss_bytes = 2 * SCALAR_BYTES if self.is_last else 0  # the loss, and its gradient, 1
        gradients_bytes = 0
        for layer in range(last, 0, -1):
            output_bytes = self._unsent_bytes(1)
            saved_bytes = sum(self.rows_bytes(width) for width in self.widths[1:layer])
            # The gradient of the output is in a buffer; of the loss it is one number, expanded,
            # which matrix products take a copy of.
            incoming_bytes = (
                self.rows_bytes(self.widths[layer]) if layer < last or self.is_last else 0
            )
            is_needed = layer > 1 or not self.is_first
            outgoing_bytes = self.rows_bytes(self.widths[layer - 1]) if is_needed else 0
            yield (
                layer,
                output_bytes + loss_bytes + saved_bytes + incoming_bytes + outgoing_bytes,
                self.weight_bytes(layer) + gradients_bytes,
            )
            gradients_bytes += self.weight_bytes(layer) if is_first_one else 0

    @property
    def _plan(self) -> PipelineSchedule:
        return plan(self.pipeline.schedule, self.pipeline.ranks, self.pipeline.micro_batches)

    def _being_sent_bytes(self, outputs: int) -> int:
        """Return outputs that are not released yet, and not counted with their micro-batches."""
        return outputs * self.rows_bytes(self.widths[-1]) - self._unsent_bytes(outputs)

    def _kept_outputs_bytes(self, micro_batches: int) -> int:
        if not (self.is_last and self.pipeline.returns_outputs):
            return 0
        return micro_batches * self.rows_bytes(self.widths[-1])

    @property
    def _merged_bytes(self) -> int:
        if not (self.is_last and self.pipeline.returns_outputs):
            return 0
        rows = self.pipeline.micro_batches * self.pipeline.rows
        return block_bytes(tensor_bytes((rows, self.widths[-1])))


def even_stages(layers: int, width: int, ranks: int) -> tuple[tuple[int, ...], ...]:
    """Return stages of equal length of a chain of equal layers.

    Raises:
        ValueError: they cannot be of equal length.
    """
    if layers % ranks:
        raise ValueError(f"{layers} layers cannot be cut into {ranks} equal stages")
    return ((width,) * (layers // ranks + 1),) * ranks


def cut(widths: Sequence[int], layers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return stages with these numbers of layers.

    Args:
        widths: of the chain's input and of each layer's output.
        layers: of each stage; each 1 at least, together all of them.

    Raises:
        ValueError: they do not make up the chain.
    """
    if min(layers, default=0) < 1 or sum(layers) != len(widths) - 1:
        raise ValueError(
            f"stages of {list(layers)} layers do not make up a chain of {len(widths) - 1}"
        )
    stages, start = [], 0
    for length in layers:
        stages.append(tuple(widths[start : start + length + 1]))
        start += length
    return tuple(stages)


@dataclass(frozen=True)
class ModelParallel:
    """A chain in one process, a stage on each GPU, without micro-batches.

    x goes from GPU to GPU by `x = stage(x.to(gpu))`, and the loss is the sum of what comes out.
    """

    rows: int
    """Of the batch."""
    stages: tuple[tuple[int, ...], ...]
    """Widths of each stage: of its input and of each layer's output."""

    def peak_bytes(self, gpu: int) -> int:
        """Return a GPU's peak in a first step; the caller holds the batch on the first GPU.

        At each layer of backward, last layer first: the inputs of this layer and of those before
        it, the gradients of its output and of its input, and gradients of weights so far. An output
        is copied to the next GPU, and it is no longer needed here.
        """
        widths = self.stages[gpu]
        is_last = gpu == len(self.stages) - 1
        scalars_bytes = 2 * SCALAR_BYTES if is_last else 0  # the loss, and its gradient, 1
        weights_bytes = [
            block_bytes(tensor_bytes((outputs, inputs))) for inputs, outputs in pairwise(widths)
        ]
        moments = []
        for layer in range(len(weights_bytes), 0, -1):
            inputs_bytes = sum(map(self._rows_bytes, widths[:layer]))
            is_needed = layer > 1 or gpu > 0
            moments.append(
                sum(weights_bytes)
                + scalars_bytes
                + inputs_bytes
                + self._rows_bytes(widths[layer])
                + (self._rows_bytes(widths[layer - 1]) if is_needed else 0)
                + sum(weights_bytes[layer - 1 :])
            )
        return max(moments)

    def _rows_bytes(self, width: int) -> int:
        return block_bytes(tensor_bytes((self.rows, width)))


def stage_slots(widths: Sequence[int], layers: Sequence[int], slot: int) -> list[int]:
    """Return how many slots each stage's forward pass takes, by its products.

    Args:
        widths: of the input and of each layer's output.
        layers: of each stage.
        slot: the width of a square layer that takes one slot.
    """
    stages = cut(widths, layers)
    return [sum(a * b for a, b in pairwise(stage)) // slot**2 for stage in stages]


def sent_bytes(pipeline: Pipeline, rank: int) -> int:
    """Return what a rank sends in a step: outputs to the next, gradients to the previous rank."""
    stage = pipeline.stage(rank)
    item_rows = 4 * pipeline.rows * pipeline.micro_batches
    forward_bytes = 0 if stage.is_last else item_rows * stage.widths[-1]
    backward_bytes = 0 if stage.is_first else item_rows * stage.widths[0]
    return forward_bytes + backward_bytes
