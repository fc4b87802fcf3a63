"""What lesson 13 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "second": Question(
        "How much higher is the peak of the second micro-batch?",
        unit="MiB",
        hint="Which gradients are in memory at each of the two peaks, old and new?",
        mistakes={
            "You counted all gradients. Two of them are in memory at the first peak, too.": 16
            * MIB,
            "You left out the last layer's new gradient. It is computed beside the old one.": (
                4 * MIB
            ),
            "That is every gradient at the second peak. Which ones are there at the first?": (
                24 * MIB
            ),
            "Activations are freed after each micro-batch, but gradients stay.": 0,
        },
    ),
    "itself": Question(
        "How many times as large as it should be is the gradient?",
        unit="times",
        hint="How many quarters of the loss does `loss` hold after `+=`?",
        mistakes={
            "You read it as `loss = loss / accumulation_steps`. The line says `+=`.": 1,
            "That is compared with the whole loss. But the right value is a quarter of it.": 1.25,
        },
    ),
    "collected": Question(
        "How high is the peak with one backward() on the sum of the losses?",
        unit="MiB",
        hint="When is the first micro-batch's graph freed, and what does it hold?",
        mistakes={
            "That is one graph at a time, as when each loss goes backward alone. The sum holds "
            "all four.": (64 + 16 + 16 + 16) * MIB,
            "That is the activations alone.": 4 * 64 * MIB,
            "That is activations and parameters. Each graph holds its input as well.": (
                (4 * 64 + 16) * MIB
            ),
        },
    ),
}
