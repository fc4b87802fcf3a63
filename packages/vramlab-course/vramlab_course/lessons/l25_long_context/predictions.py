"""What lesson 25 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PART = 128 * MIB
"""Of query, key, value or output: what one of eight ranks has."""

PREDICTIONS = {
    "loss": Question(
        "How much memory does the loss need at its highest moment?",
        unit="GiB",
        hint=(
            "Which tensors have a number for each token and each entry of the vocabulary?",
            "The logits are freed after forward, their log-softmax is saved. Which two gradients "
            "come in backward?",
        ),
        mistakes={
            "That is one such tensor.": lambda whole: whole.forward_peak_bytes // 2,
            "That is the peak of forward: logits and log-softmax. What about backward?": (
                lambda whole: whole.forward_peak_bytes
            ),
            "That would be four such tensors. The logits are not saved: backward does not need "
            "them.": lambda whole: 2 * whole.forward_peak_bytes,
        },
    ),
    "ring": Question(
        "How much does each of eight ranks send in forward, for one layer?",
        unit="MiB",
        hint="Each rank has keys and values of its part. How often are they passed on?",
        mistakes={
            "You passed on queries, too. They stay on their rank.": 3 * 7 * PART,
            "You passed on keys, but no values.": 7 * PART,
            "After seven turns every block has been on every rank.": 2 * 8 * PART,
            "That is one turn. How many are there?": 2 * PART,
        },
    ),
    "ulysses": Question(
        "How much does each rank send with Ulysses, for one layer's forward pass?",
        unit="MiB",
        hint="Query, key, value and output are 128 MiB each. How much of each stays on its rank?",
        mistakes={
            "You left out the output. It has to go back.": 3 * PART * 7 // 8,
            "A rank keeps its own eighth.": 4 * PART,
            "That is one of four tensors.": PART * 7 // 8,
        },
    ),
}
