"""BERT: its parameters, and what a forward pass keeps, with attention computed step by step.

Source: arXiv 1810.04805 §3 for the sizes; the order of the parameters and what is computed are
those of transformers 5 (models/bert/modeling_bert.py, `eager_attention_forward`). The model is in
eval mode, as from_pretrained leaves it: no dropout.

Letters of shapes: B batch, S sequence, W width, H heads, F width of the feed-forward layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramlab.formulas.storage import block_bytes, tensor_bytes


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
        """Shapes in the order of `model.parameters()`."""
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
        """What the model asks for on its way to the GPU, in order.

        The embeddings' two buffers, position_ids and token_type_ids (1, positions), int64, come
        after the embeddings' own five parameters.
        """
        sizes_bytes = [tensor_bytes(shape) for shape in self.parameter_shapes()]
        buffer_bytes = tensor_bytes((1, self.positions), "int64")
        return [*sizes_bytes[:5], buffer_bytes, buffer_bytes, *sizes_bytes[5:]]

    def forward_bytes(self, batch: int, sequence: int) -> int:
        """What a forward pass keeps for the backward pass, its outputs included; no workspace.

        Sequence up to `positions`; token types are left to their default.
        """
        rows = batch * sequence
        hidden_bytes = block_bytes(tensor_bytes((rows, self.width)))  # (B, S, W)
        inner_bytes = block_bytes(tensor_bytes((rows, self.feed_forward)))  # (B, S, F)
        scores_bytes = block_bytes(tensor_bytes((batch, self.heads, sequence, sequence)))
        # A layer norm keeps its input, its output (the next layer's input), a mean and a scale.
        norm_bytes = 2 * hidden_bytes + 2 * block_bytes(tensor_bytes((rows,)))
        attention_bytes = 4 * hidden_bytes + scores_bytes  # query, key, value, context; softmax
        layer_bytes = attention_bytes + norm_bytes + 2 * inner_bytes + norm_bytes
        gathered_types_bytes = block_bytes(tensor_bytes((1, sequence), "int64"))
        return (
            gathered_types_bytes + norm_bytes + self.layers * layer_bytes + self.pooled_bytes(batch)
        )

    def output_bytes(self, batch: int, sequence: int) -> int:
        """last_hidden_state (B, S, W), 48 MiB in the document, and pooler_output (B, W)."""
        return block_bytes(tensor_bytes((batch, sequence, self.width))) + self.pooled_bytes(batch)

    def pooled_bytes(self, batch: int) -> int:
        """pooler_output (B, W)."""
        return block_bytes(tensor_bytes((batch, self.width)))
