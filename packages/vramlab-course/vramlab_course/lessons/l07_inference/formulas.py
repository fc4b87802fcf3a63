"""Inference: the peak of a forward pass that saves nothing for backward.

Under `torch.no_grad()` or `torch.inference_mode()` a layer's input is freed as soon as no
variable refers to it. What remains is the moment with the most names.

Source: `Sequential.forward` in torch/nn/modules/container.py, whose variable holds a layer's input
until the layer has made its output; `BertModel` in transformers/models/bert/modeling_bert.py,
transformers 5, and `eager_attention_forward` there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab_course.formulas.bert import Bert


def sequential_peak_bytes(activations_bytes: Sequence[int]) -> int:
    """Return the peak of activations in a chain of layers, including the input.

    The caller holds the input during all of it. A layer's own input and output are there at once.

    Args:
        activations_bytes: sizes of the input and of each layer's output.
    """
    sizes = [block_bytes(size_bytes) for size_bytes in activations_bytes]
    given, outputs = sizes[0], sizes[1:]
    return given + max(outputs[0], *(before + after for before, after in pairwise(outputs)), 0)


def bert_peak_bytes(sizes: Bert, batch: int, sequence: int) -> int:
    """Return the peak of activations in BERT's forward pass in eval mode with eager attention.

    The worst moment is in attention, where the scores are scaled: there are the scores twice, and
    five tensors of the hidden size: query, key, value, the layer's input, and the embeddings, to
    which the model's own forward() keeps a name throughout. (If the feed-forward layer is what is
    largest, because sequences are short, this is not the worst moment.)
    """
    hidden_bytes = block_bytes(tensor_bytes((batch, sequence, sizes.width)))
    scores_bytes = block_bytes(tensor_bytes((batch, sizes.heads, sequence, sequence)))
    return 2 * scores_bytes + 5 * hidden_bytes
