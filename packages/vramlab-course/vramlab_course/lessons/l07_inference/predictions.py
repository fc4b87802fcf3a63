"""What lesson 07 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

SCORES_BYTES = 32 * 12 * 512 * 512 * 4
"""Attention scores of one layer of BERT-base: texts, heads, tokens, tokens."""

PREDICTIONS = {
    "eval": Question(
        "How much memory does the forward pass leave allocated after model.eval()?",
        unit="MiB",
        hint="Which of the saved tensors belongs to dropout alone?",
        mistakes={
            "Only the output remains under no_grad(). eval() does not turn autograd off.": 32 * MIB,
        },
    ),
    "bert-peak": Question(
        "Under no_grad(), BERT leaves 48 MiB allocated. How far does memory rise in between?",
        unit="MiB",
        hint="Scaling writes new scores. Can the old ones be freed first, and what else is alive?",
        mistakes={
            "That is one tensor of scores. While they are scaled, there are two.": SCORES_BYTES,
            "That is the scores, twice. Query, key, value and the layer's input are alive, too.": (
                2 * SCORES_BYTES
            ),
            "That is the scores of all layers. Under no_grad() each layer frees its own.": (
                12 * SCORES_BYTES
            ),
        },
    ),
    "cache": Question(
        "How large is the KV cache after 100 tokens?",
        unit="MiB",
        hint="Which two tensors does each layer store for every head and token?",
        mistakes={
            "You counted only keys or only values. The cache holds both.": (
                lambda measured: measured / 2
            ),
        },
    ),
    "no-grad": Question(
        "How much memory does the forward pass leave allocated under no_grad()?",
        unit="MiB",
        hint="Autograd saves nothing now. Which tensor still has a name?",
        mistakes={
            "The output stays alive: the caller holds it.": 0,
            "That is eval(): GELU's input, GELU's output and the model's output.": (
                (128 + 128 + 32) * MIB
            ),
            "That is train(), with dropout's mask.": (128 + 32 + 128 + 32) * MIB,
            "You counted the input too. It was allocated before.": (32 + 32) * MIB,
        },
    ),
    "three-linear": Question(
        "How high was the peak of that forward pass, in total?",
        unit="MiB",
        hint="The last layer creates the largest output. Which tensors are alive while it runs?",
        mistakes={
            "That is what remains. While the last layer runs, its input is alive as well.": (
                lambda measured: measured - 40 * MIB
            ),
            "You counted every layer's output. The first one is freed after the second layer.": (
                lambda measured: measured + 40 * MIB
            ),
            "You left out cuBLAS's workspace.": (16 + 40 + 40 + 80) * MIB,
        },
    ),
    "reorder": Question(
        "How much extra memory does reordering the beams need?",
        unit="MiB",
        hint="Each layer has two tensors. When one of them has been copied, can the old one be "
        "freed at once?",
        mistakes={
            "That is a second copy of the whole cache. Must all of it exist twice?": (
                lambda four: four
            ),
            "That is one of the four beams. index_select() copies all rows of a tensor.": (
                lambda four: four / 4
            ),
            "That is a layer's keys and values. They are copied one after the other.": (
                lambda four: four / 12
            ),
            "One row may become two, so the new tensor is written beside the old one.": 0,
        },
    ),
}
