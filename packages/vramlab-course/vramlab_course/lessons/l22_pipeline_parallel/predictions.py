"""What lesson 22 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

ACTIVATION = 2 * MIB
"""Of one micro-batch."""

PREDICTIONS = {
    "gpipe": Question(
        "How high is the peak of rank 1 with GPipe?",
        unit="MiB",
        hint="How many micro-batches have gone forward, but not yet backward, when the last one "
        "has gone forward?",
        mistakes={
            "That is one micro-batch in flight. Here all eight are, with four activations "
            "each.": lambda measured: measured - 7 * 4 * ACTIVATION,
            "You left out PyTorch's receive buffers: two activations for every micro-batch.": (
                lambda measured: measured - 8 * 2 * ACTIVATION
            ),
        },
    ),
    "1f1b": Question(
        "How much lower is the last rank's peak with 1F1B than with GPipe?",
        unit="MiB",
        hint="One micro-batch is in flight instead of eight, with four activations of 2 MiB each. "
        "When are all gradients alive?",
        mistakes={
            "That is seven micro-batches less. But at GPipe's peak, one of the eight has been "
            "freed.": 56 * MIB,
        },
    ),
}
