"""Data parallelism: the memory of each GPU with nn.DataParallel and DistributedDataParallel.

The model is a classifier, a chain of Linear layers without biases: `layers` of (width, width), then
a head (width -> classes). Everything is float32. A step is

    loss = cross_entropy(outputs, labels)      # outputs = model(x), held by the caller
    loss.backward(); optimizer.step(); optimizer.zero_grad()

DataParallel copies the model to every GPU in each forward pass, in flat pieces; gathers the outputs
on GPU 0, where the caller computes the loss; and adds the replicas' gradients up there.
DistributedDataParallel has a replica in every process, which computes the loss of its own rows, and
flat buckets in which gradients are reduced.

Source: torch/nn/parallel/data_parallel.py, replicate.py, _functions.py and comm.py,
torch/csrc/utils/tensor_flatten.cpp (`take_tensors`); torch/nn/parallel/distributed.py,
torch/csrc/distributed/c10d/reducer.cpp (`compute_bucket_assignment_by_size`,
`mark_variable_ready_dense`), PyTorch 2.13.

All of it is exact if no block keeps an unsplit remainder: sizes that are at most 1 MiB, or
multiples of 2 MiB. cuBLAS's workspaces are not included. Letters of shapes: B rows of the whole
batch, b rows of one GPU, W width, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vramlab.cuda_rules.rounding import ceil_div
from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.units import MIB
from vramlab_course.formulas.training import SCALAR_BYTES

PARAMETERS = "parameters (a replica)"
STATES = "optimizer states"
GRADIENTS = "gradients"
SUMS = "gradients being added up"
BUCKETS = "buckets"
ACTIVATIONS = "activations and inputs"
OUTPUTS = "outputs"
LOSS = "loss: softmax and gradients"

PARTS = (PARAMETERS, STATES, GRADIENTS, SUMS, BUCKETS, ACTIVATIONS, OUTPUTS, LOSS)
"""What a GPU's bytes are, in the order in which pictures stack them."""

AT_LOSS = "backward, through the loss"
AT_SUMS = "backward, adding gradients up"
"""Moments; the others are 'backward, layer N'."""

Parts = dict[str, int]
"""Bytes by part."""


def in_order(parts: Parts) -> Parts:
    """Return all of `PARTS`, with 0 bytes if missing, so that pictures keep their colours."""
    return {part: parts.get(part, 0) for part in PARTS}


PIECE_BYTES = 10 * MIB
"""DataParallel sends parameters and gradients in pieces of about this."""
FIRST_BUCKET_BYTES = 1 * MIB
BUCKET_BYTES = 25 * MIB
"""DDP's defaults: a first bucket that is soon full, and the others."""


@dataclass(frozen=True)
class Classifier:
    """The model, and what a step of it keeps and makes, by the rows that go through it."""

    width: int
    layers: int
    """Hidden layers, without the head."""
    classes: int
    states: int = 2
    """Tensors of a parameter's size that the optimizer keeps: AdamW 2, plain SGD 0."""

    @property
    def weights_bytes(self) -> list[int]:
        """Return the bytes of each weight, from the first layer to the head."""
        hidden_bytes = block_bytes(tensor_bytes((self.width, self.width)))
        head_bytes = block_bytes(tensor_bytes((self.classes, self.width)))
        return [hidden_bytes] * self.layers + [head_bytes]

    @property
    def parameters_bytes(self) -> int:
        """Return the bytes of all weights; their gradients are as large."""
        return sum(self.weights_bytes)

    def rows_bytes(self, rows: int) -> int:
        """Return the bytes of an input or activation (rows, W)."""
        return block_bytes(tensor_bytes((rows, self.width)))

    def outputs_bytes(self, rows: int) -> int:
        """Return the bytes of outputs (rows, C)."""
        return block_bytes(tensor_bytes((rows, self.classes)))

    def labels_bytes(self, rows: int) -> int:
        """Return the bytes of labels (rows), int64."""
        return block_bytes(tensor_bytes((rows,), "int64"))

    def through_layer_bytes(self, layer: int, rows: int) -> tuple[int, int, int]:
        """Return what backward through each layer holds at the same time: its three gradients.

        The first layer's input needs no gradient.
        """
        is_head = layer == self.layers + 1
        output_bytes = self.outputs_bytes(rows) if is_head else self.rows_bytes(rows)
        input_bytes = 0 if layer == 1 else self.rows_bytes(rows)
        return output_bytes, input_bytes, self.weights_bytes[layer - 1]


def rows_of(gpu: int, batch: int, gpus: int) -> int:
    """Return the rows of each GPU under DataParallel (`torch.chunk`: the last may get fewer).

    With fewer rows than GPUs some get none, and hold nothing.
    """
    rows = ceil_div(batch, gpus)
    return max(0, min(rows, batch - gpu * rows))


# ---- DataParallel ----


@dataclass(frozen=True)
class DataParallelStep:
    """A step after the first one, with DataParallel. Input and labels lie on GPU 0.

    Attributes:
        model: what is trained.
        gpus: how many share the batch; each has rows.
        batch: rows of the whole batch.
        loss_inside: the module computes the loss of its rows itself, and answers a number; those
            are gathered, and averaged by the caller.
    """

    model: Classifier
    gpus: int
    batch: int
    loss_inside: bool = False

    def after_forward(self, gpu: int) -> Parts:
        """Return a GPU's memory when `parallel(x)` has returned.

        A replica stays in the graph, but for pieces of which no weight is needed any more: the
        first weight of all is needed for nothing, as the input needs no gradient.
        """
        model, rows = self.model, rows_of(gpu, self.batch, self.gpus)
        if rows == 0:
            return {}
        hidden_bytes = model.layers * model.rows_bytes(rows)
        if gpu == 0:
            parts = {
                PARAMETERS: model.parameters_bytes,
                STATES: model.states * model.parameters_bytes,
                ACTIVATIONS: model.rows_bytes(self.batch)
                + model.labels_bytes(self.batch)
                + hidden_bytes,
            }
        else:
            parts = {
                PARAMETERS: self._replica_bytes(needed_from=2),
                ACTIVATIONS: model.rows_bytes(rows) + hidden_bytes,
            }
        if self.loss_inside:
            parts[ACTIVATIONS] += model.labels_bytes(rows) if gpu else 0
            # the softmax; the weight of all rows; the loss, which on GPU 0 only the gathered holds
            parts[LOSS] = model.outputs_bytes(rows) + SCALAR_BYTES
            parts[OUTPUTS] = SCALAR_BYTES if gpu == 0 else 0
        elif gpu == 0:
            parts[OUTPUTS] = model.outputs_bytes(self.batch)
        return parts

    def after_loss(self, gpu: int) -> Parts:
        """Return a GPU's memory when the caller has computed the loss."""
        parts = self.after_forward(gpu)
        if gpu == 0 and self.loss_inside:
            parts[LOSS] += SCALAR_BYTES
        elif gpu == 0:  # the softmax; the loss, and the weight of all rows
            parts[LOSS] = self.model.outputs_bytes(self.batch) + 2 * SCALAR_BYTES
        return parts

    def backward_moments(self, gpu: int) -> dict[str, Parts]:
        """Return a GPU's memory at the moments of the backward pass that can be its peak."""
        model, rows = self.model, rows_of(gpu, self.batch, self.gpus)
        held = self.after_loss(gpu)
        if rows == 0:
            return {}
        moments: dict[str, Parts] = {}
        loss_rows = rows if self.loss_inside else self.batch if gpu == 0 else 0
        if loss_rows:
            outputs_bytes = model.outputs_bytes(loss_rows)
            # The weight of all rows is gone, and so are labels that only the graph held.
            held[LOSS] -= SCALAR_BYTES
            held[ACTIVATIONS] -= model.labels_bytes(rows) if gpu else 0
            if gpu == 0:
                held[LOSS] += SCALAR_BYTES  # the number 1, which starts backward, and stays
            moments[AT_LOSS] = {**held, LOSS: held[LOSS] + 2 * outputs_bytes}
            held[LOSS] -= outputs_bytes  # then the softmax is gone, and with it the first gradient
        gradients_bytes = 0
        for layer in range(model.layers + 1, 0, -1):
            output_bytes, input_bytes, weight_bytes = model.through_layer_bytes(layer, rows)
            if layer == model.layers + 1 and loss_rows:
                output_bytes = model.outputs_bytes(loss_rows)  # whose first rows are GPU 0's
            now = dict(held)
            if gpu != 0:
                now[PARAMETERS] = self._replica_bytes(needed_from=2, to=layer)
            now[ACTIVATIONS] += output_bytes + input_bytes
            now[GRADIENTS] = gradients_bytes + weight_bytes
            moments[f"backward, layer {layer}"] = now
            gradients_bytes += weight_bytes
            held[ACTIVATIONS] -= model.rows_bytes(rows) if layer > 1 or gpu != 0 else 0
        if gpu != 0:
            held[PARAMETERS] = 0
        sums_bytes = _adding_up_bytes(model.weights_bytes, sums=gpu == 0)
        moments[AT_SUMS] = {**held, GRADIENTS: gradients_bytes, SUMS: sums_bytes}
        return moments

    def peak(self, gpu: int) -> tuple[str, Parts]:
        """Return the moment of the backward pass with the most memory on a GPU, and that memory."""
        moments = self.backward_moments(gpu)
        return max(moments.items(), key=lambda item: sum(item[1].values()))

    def after_backward(self, gpu: int) -> Parts:
        """Return a GPU's memory when `loss.backward()` has returned: nothing except on GPU 0."""
        model = self.model
        if gpu != 0:
            return {}
        after = self.after_loss(0)
        scalars_bytes = after[LOSS] - model.outputs_bytes(self._loss_rows)
        return {
            PARAMETERS: model.parameters_bytes,
            STATES: model.states * model.parameters_bytes,
            GRADIENTS: model.parameters_bytes,
            ACTIVATIONS: model.rows_bytes(self.batch) + model.labels_bytes(self.batch),
            OUTPUTS: after[OUTPUTS],
            LOSS: SCALAR_BYTES if not self.loss_inside else scalars_bytes - SCALAR_BYTES,
        }

    @property
    def _loss_rows(self) -> int:
        return rows_of(0, self.batch, self.gpus) if self.loss_inside else self.batch

    def _replica_bytes(self, needed_from: int, to: int | None = None) -> int:
        """Pieces of a replica that hold a weight of layers `needed_from` to `to`."""
        to = to or self.model.layers + 1
        weights_bytes = self.model.weights_bytes
        return sum(
            sum(weights_bytes[number] for number in piece)
            for piece in pieces(weights_bytes)
            if any(needed_from <= number + 1 <= to for number in piece)
        )


def pieces(tensors_bytes: Sequence[int]) -> list[list[int]]:
    """Return the tensors that DataParallel sends together, by number, in pieces of up to 10 MiB."""
    return buckets(tensors_bytes, PIECE_BYTES, PIECE_BYTES)


def _adding_up_bytes(gradients_bytes: Sequence[int], sums: bool) -> int:
    """Return the temporary bytes of adding gradients: flat pieces, and on GPU 0 their sums.

    Here a piece is closed before it exceeds 10 MiB. One of several gradients is laid flat, while
    the flat piece before it is still there.
    """
    chunks: list[list[int]] = [[]]
    for size_bytes in gradients_bytes:
        if chunks[-1] and sum(chunks[-1]) + size_bytes > PIECE_BYTES:
            chunks.append([])
        chunks[-1].append(size_bytes)
    most_bytes = summed_bytes = flat_before_bytes = 0
    for chunk in chunks:
        flat_bytes = sum(chunk) if len(chunk) > 1 else 0
        most_bytes = max(most_bytes, summed_bytes + flat_before_bytes + flat_bytes)
        if sums:
            summed_bytes += sum(chunk)
            most_bytes = max(most_bytes, summed_bytes + flat_bytes)
        flat_before_bytes = flat_bytes
    return most_bytes


# ---- DistributedDataParallel ----


def buckets(
    gradients_bytes: Iterable[int],
    first_bytes: int = FIRST_BUCKET_BYTES,
    others_bytes: int = BUCKET_BYTES,
) -> list[list[int]]:
    """Return the gradients that DDP reduces together, by number, from its second step on.

    A bucket is closed as soon as it is full, so it can be larger than its limit by almost a
    gradient. With a `bucket_cap_mb` of one's own, that is the first bucket's limit too. Until the
    first backward pass is over, all gradients are in one bucket: their order is not known yet.

    Args:
        gradients_bytes: in the order in which backward makes them: the last layer's first.
        first_bytes: limit of the first bucket.
        others_bytes: limit of the others.
    """
    closed: list[list[int]] = []
    bucket: list[int] = []
    filled_bytes = 0
    for number, size_bytes in enumerate(gradients_bytes):
        bucket.append(number)
        filled_bytes += size_bytes
        if filled_bytes >= (others_bytes if closed else first_bytes):
            closed.append(bucket)
            bucket, filled_bytes = [], 0
    return [*closed, bucket] if bucket else closed


@dataclass(frozen=True)
class DistributedStep:
    """A step after the first one, of one rank with DDP, or of a process alone.

    Attributes:
        model: what is trained.
        rows: of this rank's own batch.
        buckets: whether there are buckets, which is what DDP adds.
        as_view: gradient_as_bucket_view, so that gradients lie in the buckets.
    """

    model: Classifier
    rows: int
    buckets: bool = True
    as_view: bool = False

    def after_forward(self) -> Parts:
        """Return the GPU's memory when `model(x)` has returned."""
        model = self.model
        return {
            PARAMETERS: model.parameters_bytes,
            STATES: model.states * model.parameters_bytes,
            BUCKETS: model.parameters_bytes if self.buckets else 0,
            ACTIVATIONS: (1 + model.layers) * model.rows_bytes(self.rows)
            + model.labels_bytes(self.rows),
            OUTPUTS: model.outputs_bytes(self.rows),
        }

    def backward_moments(self) -> dict[str, Parts]:
        """Return the GPU's memory at the moments of the backward pass that can be its peak."""
        model = self.model
        outputs_bytes = model.outputs_bytes(self.rows)
        # The loss, and the number 1, which starts backward. The weight of all rows is gone.
        held = {**self.after_forward(), LOSS: 2 * SCALAR_BYTES}
        moments = {AT_LOSS: {**held, LOSS: held[LOSS] + 3 * outputs_bytes}}
        gradients_bytes = 0
        for layer in range(model.layers + 1, 0, -1):
            output_bytes, input_bytes, weight_bytes = model.through_layer_bytes(layer, self.rows)
            moments[f"backward, layer {layer}"] = {
                **held,
                ACTIVATIONS: held[ACTIVATIONS] + output_bytes + input_bytes,
                GRADIENTS: gradients_bytes + weight_bytes,
            }
            gradients_bytes += 0 if self.as_view else weight_bytes  # copied into its bucket
            held[ACTIVATIONS] -= model.rows_bytes(self.rows) if layer > 1 else 0
        return moments

    def peak(self) -> tuple[str, Parts]:
        """Return the moment of the backward pass with the most memory, and that memory."""
        return max(self.backward_moments().items(), key=lambda item: sum(item[1].values()))

    def after_backward(self) -> Parts:
        """Return the GPU's memory when `loss.backward()` has returned."""
        model = self.model
        return {
            **self.after_forward(),
            ACTIVATIONS: model.rows_bytes(self.rows) + model.labels_bytes(self.rows),
            GRADIENTS: 0 if self.as_view else model.parameters_bytes,
            LOSS: SCALAR_BYTES,
        }
