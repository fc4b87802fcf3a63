"""BERT: parameters, activations, and the peak of a training step.

Source: arXiv 1810.04805 §3 for the sizes; the order of the parameters and what is computed are
those of transformers 5 (models/bert/modeling_bert.py, `eager_attention_forward`); what each op
keeps is in tools/autograd/derivatives.yaml, PyTorch 2.13.

In eval mode, as from_pretrained leaves a model, nothing is dropped. In train mode, dropout keeps a
mask of one byte for each element; what it puts out is kept where the next op needs it.

Letters of shapes: B batch, S sequence, W width, H heads, F width of the feed-forward layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vramlab.cuda_rules.rounding import round_up
from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab_course.formulas.training import SCALAR_BYTES, SumBuffers

Attention = Literal["eager", "efficient"]
"""How attention is computed: step by step, or by PyTorch's memory-efficient kernel, which is what
attn_implementation="sdpa" comes to in float32."""

QUERY_KEY_VALUE = "query, key, value"
SOFTMAX = "softmax"
DROPPED_SOFTMAX = "softmax, dropped, and mask"
SUMS = "sums of the softmax"
CONTEXT = "context"
MASKS = "masks of dropout"
NORMS = "layer norms"
FEED_FORWARD = "feed-forward"
REST = "token types, pooler"

SECOND_LINEAR = "second feed-forward layer, gradient of the bias"
FIRST_LINEAR = "first feed-forward layer, gradient of the bias"
DROPPED_WEIGHTS = "attention, gradient of the dropped softmax"
WEIGHTS = "attention, gradient of the softmax"
"""Moments of the backward pass, see `Bert.backward_moments`."""

PARTS = (
    QUERY_KEY_VALUE,
    SOFTMAX,
    DROPPED_SOFTMAX,
    SUMS,
    CONTEXT,
    NORMS,
    FEED_FORWARD,
    MASKS,
    REST,
)
"""What the kept tensors are, in the order in which pictures stack them."""


@dataclass(frozen=True)
class KeptByBert:
    """Tensors that a forward pass keeps."""

    place: str
    """'embeddings', 'layer 0', 'layer 1', ... or 'pooler'."""
    module: str
    """The module in there that keeps them, such as 'attention.self'; '' for the place itself."""
    part: str
    """One of `PARTS`."""
    size_bytes: int
    """As blocks."""


@dataclass(frozen=True)
class Bert:
    """Sizes of a BERT; those of bert-base-uncased by default."""

    vocabulary: int = 30522
    positions: int = 512
    types: int = 2
    width: int = 768
    layers: int = 12
    heads: int = 12
    feed_forward: int = 3072

    def parameter_shapes(self, pooler: bool = True) -> list[tuple[int, ...]]:
        """Return the shapes of the parameters, in the order of `model.parameters()`."""
        w, f = self.width, self.feed_forward
        shapes: list[tuple[int, ...]] = [(self.vocabulary, w), (self.positions, w), (self.types, w)]
        shapes += [(w,), (w,)]  # layer norm
        for _ in range(self.layers):
            shapes += 4 * [(w, w), (w,)]  # query, key, value, output
            shapes += [(w,), (w,)]
            shapes += [(f, w), (f,), (w, f), (w,)]
            shapes += [(w,), (w,)]
        if pooler:
            shapes += [(w, w), (w,)]
        return shapes

    def model_requests_bytes(self) -> list[int]:
        """Return the sizes that the model requests while it moves to the GPU, in order.

        The embeddings' two buffers, position_ids and token_type_ids (1, positions), int64, come
        after the embeddings' own five parameters.
        """
        sizes_bytes = [tensor_bytes(shape) for shape in self.parameter_shapes()]
        buffer_bytes = tensor_bytes((1, self.positions), "int64")
        return [*sizes_bytes[:5], buffer_bytes, buffer_bytes, *sizes_bytes[5:]]

    # ---- What a forward pass keeps ----

    def kept(
        self, batch: int, sequence: int, *, train: bool = False, attention: Attention = "eager"
    ) -> tuple[KeptByBert, ...]:
        """Return the tensors a forward pass saves for backward, and its outputs; no workspaces.

        Args:
            batch: sequences.
            sequence: tokens of each, up to `positions`; token types are left to their default.
            train: the model is in train mode; each of BERT's dropouts has a probability above 0.
            attention: how attention is computed.
        """
        gathered_bytes = block_bytes(tensor_bytes((1, sequence), "int64"))
        hidden_bytes = self._hidden_bytes(batch, sequence)
        # The input, which is the sum of three embeddings; what comes out; mean and scale. In train
        # mode a dropout follows: its output is what stays, as large, and a mask.
        norm_bytes = 2 * hidden_bytes + self._statistics_bytes(batch, sequence)
        tensors = [
            KeptByBert("embeddings", "", REST, gathered_bytes),
            KeptByBert("embeddings", "", NORMS, norm_bytes),
        ]
        if train:
            tensors.append(KeptByBert("embeddings", "", MASKS, self._mask_bytes(batch, sequence)))
        in_layer = self._kept_by_layer(batch, sequence, train, attention)
        for layer in range(self.layers):
            tensors += [
                KeptByBert(f"layer {layer}", module, part, size_bytes)
                for module, part, size_bytes in in_layer
            ]
        tensors.append(KeptByBert("pooler", "", REST, self.pooled_bytes(batch)))
        return tuple(tensors)

    def forward_bytes(
        self, batch: int, sequence: int, *, train: bool = False, attention: Attention = "eager"
    ) -> int:
        """Return how much a forward pass adds: the sum of `kept`."""
        tensors = self.kept(batch, sequence, train=train, attention=attention)
        return sum(tensor.size_bytes for tensor in tensors)

    def _kept_by_layer(
        self, batch: int, sequence: int, train: bool, attention: Attention
    ) -> list[tuple[str, str, int]]:
        """Return module, part and bytes of what each layer saves; its input is the one before's."""
        hidden_bytes = self._hidden_bytes(batch, sequence)
        statistics_bytes = self._statistics_bytes(batch, sequence)
        mask_bytes = self._mask_bytes(batch, sequence)
        scores_bytes = self._scores_bytes(batch, sequence)
        inner_bytes = self._inner_bytes(batch, sequence)

        # Copies of query, key and value by head; the softmax; the context, a copy too.
        tensors = [("attention.self", QUERY_KEY_VALUE, 3 * hidden_bytes)]
        if attention == "eager":
            tensors.append(("attention.self", SOFTMAX, scores_bytes))
            if train:
                dropped_bytes = scores_bytes + self._score_mask_bytes(batch, sequence)
                tensors.append(("attention.self", DROPPED_SOFTMAX, dropped_bytes))
        else:
            # The kernel drops by itself, and makes the random numbers again in the backward pass.
            rows = round_up(sequence, 32)
            sums_bytes = block_bytes(tensor_bytes((batch, self.heads, rows)))
            tensors.append(("attention.self", SUMS, sums_bytes))
        tensors.append(("attention.self", CONTEXT, hidden_bytes))
        # Each layer norm keeps its input (the sum with the residual), its output, which the next
        # Linear layer reads, a mean and a scale. What is dropped before is gone after the sum.
        norm_bytes = 2 * hidden_bytes + statistics_bytes
        for module in ("attention.output", "output"):
            if module == "output":  # the first Linear layer's output, which GELU reads; GELU's
                tensors.append(("intermediate", FEED_FORWARD, 2 * inner_bytes))
            if train:
                tensors.append((module, MASKS, mask_bytes))
            tensors.append((module, NORMS, norm_bytes))
        return tensors

    # ---- The peak of a step ----

    def held_before_backward_bytes(
        self, batch: int, sequence: int, *, train: bool = False, attention: Attention = "eager"
    ) -> int:
        """Return what `model(tokens).last_hidden_state.sum()` leaves: activations and the loss.

        No variable refers to the outputs, so the last layer norm's and the pooler's are gone.
        """
        return (
            self.forward_bytes(batch, sequence, train=train, attention=attention)
            - self.output_bytes(batch, sequence)
            + SCALAR_BYTES
        )

    def backward_moments(
        self,
        batch: int,
        sequence: int,
        sum_buffers_bytes: SumBuffers,
        *,
        train: bool = False,
        attention: Attention = "eager",
    ) -> dict[str, int]:
        """Return activations, gradients and temporaries at the moments that can be the peak.

        They are in the backward pass of the last layer: what comes before it in that pass is small,
        and with each further layer more activations go than gradients of weights come. (So it is
        as long as `batch` x `sequence` is 1,000 or more; below that, the peak can be at the end of
        the pass.) The step begins without gradients, and is

            model(tokens).last_hidden_state.sum().backward()

        Parameters, tokens, optimizer states and workspaces are not included.

        Args:
            batch: sequences.
            sequence: tokens of each.
            sum_buffers_bytes: what a sum over rows takes while it runs; see `reductions`.
            train: the model is in train mode.
            attention: how attention is computed.
        """
        w, f, rows = self.width, self.feed_forward, batch * sequence
        hidden_bytes = self._hidden_bytes(batch, sequence)
        statistics_bytes = self._statistics_bytes(batch, sequence)
        mask_bytes = self._mask_bytes(batch, sequence) if train else 0
        scores_bytes = self._scores_bytes(batch, sequence)
        inner_bytes = self._inner_bytes(batch, sequence)

        held_bytes = self.held_before_backward_bytes(
            batch, sequence, train=train, attention=attention
        )
        # The gradient of the loss, a number, stays to the end. The last layer norm freed its
        # input and statistics, and made the gradient of its input, which waits for the residual.
        held_bytes += SCALAR_BYTES + hidden_bytes
        held_bytes -= hidden_bytes + statistics_bytes + mask_bytes
        gradients_bytes = _blocks((w,), (w,), (w, f), (w,))
        # In train mode dropout has made a gradient of its own.
        dropped_bytes = hidden_bytes if train else 0
        moments = {
            SECOND_LINEAR: held_bytes
            + dropped_bytes
            + inner_bytes
            + gradients_bytes
            + sum_buffers_bytes(rows, w)
        }
        # Now GELU's output and input are gone; of the gradients, that of GELU's input is there.
        gradients_bytes += _blocks((f, w), (f,))
        held_bytes -= 2 * inner_bytes
        moments[FIRST_LINEAR] = (
            held_bytes + inner_bytes + hidden_bytes + gradients_bytes + sum_buffers_bytes(rows, f)
        )
        if attention == "eager":
            # Gone besides: the layer norm in the middle (its input, output, statistics) and the
            # context. The gradient of the value is there.
            gradients_bytes += _blocks((w,), (w,), (w, w), (w,))
            held_bytes += gradients_bytes - 3 * hidden_bytes - statistics_bytes - mask_bytes
            held_bytes += hidden_bytes
            # The scores' gradient is made from the softmax's, by way of the product of gradient and
            # softmax; the value is gone.
            weights_bytes = 3 * scores_bytes - hidden_bytes
            if train:  # before that, the dropped softmax's is made from the context's
                moments[DROPPED_WEIGHTS] = held_bytes + hidden_bytes + scores_bytes
                weights_bytes -= scores_bytes + self._score_mask_bytes(batch, sequence)
            moments[WEIGHTS] = held_bytes + weights_bytes
        return moments

    # ---- Sizes ----

    def output_bytes(self, batch: int, sequence: int) -> int:
        """Return the bytes of last_hidden_state (B, S, W) and pooler_output (B, W).

        In the published run, last_hidden_state takes 48 MiB.
        """
        return self._hidden_bytes(batch, sequence) + self.pooled_bytes(batch)

    def pooled_bytes(self, batch: int) -> int:
        """Return the size of pooler_output (B, W)."""
        return _blocks((batch, self.width))

    def _hidden_bytes(self, batch: int, sequence: int) -> int:
        """(B, S, W)."""
        return _blocks((batch, sequence, self.width))

    def _inner_bytes(self, batch: int, sequence: int) -> int:
        """(B, S, F)."""
        return _blocks((batch, sequence, self.feed_forward))

    def _scores_bytes(self, batch: int, sequence: int) -> int:
        """(B, H, S, S): what grows with the square of the length."""
        return _blocks((batch, self.heads, sequence, sequence))

    def _statistics_bytes(self, batch: int, sequence: int) -> int:
        """Mean and scale of a layer norm, (B, S) each."""
        return _blocks((batch, sequence), (batch, sequence))

    def _mask_bytes(self, batch: int, sequence: int) -> int:
        """Add up what dropout keeps of a (B, S, W): a byte for each element."""
        return block_bytes(tensor_bytes((batch, sequence, self.width), "bool"))

    def _score_mask_bytes(self, batch: int, sequence: int) -> int:
        """Add up what dropout keeps of the softmax, (B, H, S, S): a byte for each element."""
        return block_bytes(tensor_bytes((batch, self.heads, sequence, sequence), "bool"))


def _blocks(*shapes: tuple[int, ...]) -> int:
    """Blocks of float32 tensors."""
    return sum(block_bytes(tensor_bytes(shape)) for shape in shapes)
